// nn/models/bloom.h: BLOOM (BigScience 2022), as Hugging Face's BloomForCausalLM.
#pragma once

#include "nn/attention/self_attention.h"
#include "nn/buffer.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/models/bloom_config.h"
#include "nn/norm.h"

namespace zinc::nn {

// x + self_attention(input_layernorm(x)), then x + mlp(post_attention_layernorm(x)).
class BloomBlock : public Module {
 public:
  BloomBlock(Module& parent, std::string name, const BloomConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);

 private:
  LayerNorm input_layernorm_;
  SelfAttention self_attention_;
  LayerNorm post_attention_layernorm_;
  Mlp mlp_;
};

// Positions enter as ALiBi (Press et al. 2022); a norm follows the embedding.
class Bloom : public Decoder {
 public:
  explicit Bloom(const BloomConfig& config);  // throws ConfigError where it is inconsistent

  std::string_view model_type() const override { return "bloom"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.num_layers * config_.hidden_size;
  }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const BloomConfig& config() const { return config_; }

 private:
  struct Transformer : Module {
    Transformer(Module& parent, std::string name, const BloomConfig& config);
    Embedding word_embeddings;
    LayerNorm word_embeddings_layernorm;
    ModuleList<BloomBlock> h;
    LayerNorm ln_f;
  };

  int64_t num_layers() const override { return config_.num_layers; }
  Tensor embed(const Tensor& ids, const AttentionScope& scope) override;
  PositionTerms terms(int64_t layer, int64_t count, DType dtype) override;
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override;
  Tensor final_norm(const Tensor& x) override { return transformer_.ln_f.forward(x); }
  LmHead& head() override { return head_; }

  BloomConfig config_;
  Transformer transformer_;
  LmHead head_;
  Buffer slopes_;  // ALiBi slopes, one for each head
};

}  // namespace zinc::nn
