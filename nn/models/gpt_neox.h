// nn/models/gpt_neox.h: GPT-NeoX (Black et al. 2022), as Hugging Face's GPTNeoXForCausalLM.
#pragma once

#include "autograd/ops/rotary.h"
#include "nn/attention/self_attention.h"
#include "nn/buffer.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/models/gpt_neox_config.h"
#include "nn/norm.h"

namespace zinc::nn {

// x + attention(input_layernorm(x)) + mlp(post_attention_layernorm(x)), both of the same x; without
// the parallel residual one after the other, as in GPT-2.
class GptNeoxBlock : public Module {
 public:
  GptNeoxBlock(Module& parent, std::string name, const GptNeoxConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);

 private:
  bool parallel_;
  LayerNorm input_layernorm_;
  LayerNorm post_attention_layernorm_;
  SelfAttention attention_;
  Mlp mlp_;
};

class GptNeox : public Decoder {
 public:
  explicit GptNeox(const GptNeoxConfig& config);  // throws ConfigError where it is inconsistent

  std::string_view model_type() const override { return "gpt_neox"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.num_layers * config_.hidden_size;
  }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const GptNeoxConfig& config() const { return config_; }

 private:
  struct Body : Module {
    Body(Module& parent, std::string name, const GptNeoxConfig& config);
    Embedding embed_in;
    Dropout emb_dropout;
    ModuleList<GptNeoxBlock> layers;
    LayerNorm final_layer_norm;
  };

  int64_t num_layers() const override { return config_.num_layers; }
  Tensor embed(const Tensor& ids, const AttentionScope& scope) override;
  PositionTerms terms(int64_t layer, int64_t count, DType dtype) override;
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override;
  Tensor final_norm(const Tensor& x) override { return gpt_neox_.final_layer_norm.forward(x); }
  LmHead& head() override { return head_; }

  GptNeoxConfig config_;
  Body gpt_neox_;
  LmHead head_;
  Buffer table_;  // cosines and sines
};

}  // namespace zinc::nn
