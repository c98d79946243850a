// nn/models/bloom.h: BLOOM (BigScience 2022), as Hugging Face's BloomForCausalLM.
#pragma once

#include "nn/attention.h"
#include "nn/buffer.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/models/bloom_config.h"
#include "nn/norm.h"
#include "nn/stages.h"

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
class Bloom : public Model, public Staged, public CachedCausalLm, public HasOutputs {
 public:
  explicit Bloom(const BloomConfig& config);  // throws ConfigError where it is inconsistent

  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  NamedTensors outputs(const Batch& batch) override;  // logits, hidden
  int64_t num_stages() override;                      // the embedding, every block, the head
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  Tensor next_logits(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, KvCache& cache) override;
  std::string_view model_type() const override { return "bloom"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
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

  Tensor embed(const Tensor& ids);
  Tensor hidden(const Tensor& ids, KvCache* cache);
  PositionTerms terms();
  Parameter& head();

  BloomConfig config_;
  Transformer transformer_;
  std::optional<Linear> lm_head_;  // absent where it shares word_embeddings
  Buffer slopes_;                  // of each head
};

}  // namespace zinc::nn
