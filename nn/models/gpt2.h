// nn/models/gpt2.h: GPT-2 (Radford et al. 2019), as Hugging Face's GPT2LMHeadModel.
#pragma once

#include "nn/attention/self_attention.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/models/gpt2_config.h"
#include "nn/norm.h"

namespace zinc::nn {

// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class Gpt2Block : public Module {
 public:
  Gpt2Block(Module& parent, std::string name, const Gpt2Config& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope);  // [B, T, C] -> [B, T, C]

 private:
  LayerNorm ln_1_;
  SelfAttention attn_;
  LayerNorm ln_2_;
  Mlp mlp_;
};

class Gpt2 : public Decoder {
 public:
  explicit Gpt2(const Gpt2Config& config);  // throws ConfigError where the config is inconsistent

  std::string_view model_type() const override { return "gpt2"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.num_layers * config_.hidden_size;
  }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const Gpt2Config& config() const { return config_; }

 private:
  struct Transformer : Module {
    Transformer(Module& parent, std::string name, const Gpt2Config& config);
    Embedding wte;
    Embedding wpe;
    Dropout drop;
    ModuleList<Gpt2Block> h;
    LayerNorm ln_f;
  };

  int64_t num_layers() const override { return config_.num_layers; }
  Tensor embed(const Tensor& ids, const AttentionScope& scope) override;
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override;
  Tensor final_norm(const Tensor& x) override { return transformer_.ln_f.forward(x); }
  LmHead& head() override { return head_; }

  Gpt2Config config_;
  Transformer transformer_;
  LmHead head_;
};

}  // namespace zinc::nn
