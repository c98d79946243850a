// nn/models/llama.h: Llama (Touvron et al. 2023), as Hugging Face's LlamaForCausalLM, and its kin
// (LlamaKind): Mistral, Qwen2, Qwen3.
#pragma once

#include "autograd/ops/rotary.h"
#include "nn/attention/self_attention.h"
#include "nn/buffer.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/models/llama_config.h"
#include "nn/norm.h"

namespace zinc::nn {

// Grouped-query attention with rotary positions. Members q_proj, k_proj, v_proj, o_proj; q_norm and
// k_norm where heads are normed.
class LlamaAttention : public AttentionLayer {
 public:
  LlamaAttention(Module& parent, std::string name, const LlamaConfig& config);
  // residual + the attention of x.
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x, const AttentionScope& scope,
                           const PositionTerms& positions);

 private:
  HeadRows projected(const Tensor& x);

  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear o_proj_;
  std::optional<RMSNorm> q_norm_;  // norm over head_dim
  std::optional<RMSNorm> k_norm_;
};

// x + self_attn(input_layernorm(x)), then x + mlp(post_attention_layernorm(x)).
class LlamaBlock : public Module {
 public:
  LlamaBlock(Module& parent, std::string name, const LlamaConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);

 private:
  LlamaAttention self_attn_;
  GatedMlp mlp_;
  RMSNorm input_layernorm_;
  RMSNorm post_attention_layernorm_;
};

class Llama : public Decoder {
 public:
  explicit Llama(const LlamaConfig& config);  // throws ConfigError where it is inconsistent

  std::string_view model_type() const override { return config_.model_type(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.num_layers * config_.kv_heads() * config_.head_dim();
  }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const LlamaConfig& config() const { return config_; }

 private:
  struct Body : Module {
    Body(Module& parent, std::string name, const LlamaConfig& config);
    Embedding embed_tokens;
    ModuleList<LlamaBlock> layers;
    RMSNorm norm;
  };

  int64_t num_layers() const override { return config_.num_layers; }
  Tensor embed(const Tensor& ids, const AttentionScope& scope) override;
  PositionTerms terms(int64_t layer, int64_t count, DType dtype) override;
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override;
  Tensor final_norm(const Tensor& x) override { return model_.norm.forward(x); }
  LmHead& head() override { return head_; }

  LlamaConfig config_;
  Body model_;
  LmHead head_;
  Buffer table_;  // cosines and sines
};

}  // namespace zinc::nn
