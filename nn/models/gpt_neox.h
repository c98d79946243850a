// nn/models/gpt_neox.h: GPT-NeoX (Black et al. 2022), as Hugging Face's GPTNeoXForCausalLM.
#pragma once

#include "autograd/ops/rotary.h"
#include "nn/attention.h"
#include "nn/buffer.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/models/gpt_neox_config.h"
#include "nn/norm.h"
#include "nn/stages.h"

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

class GptNeox : public Model, public Staged, public CachedCausalLm, public HasOutputs {
 public:
  explicit GptNeox(const GptNeoxConfig& config);  // throws ConfigError where it is inconsistent

  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  NamedTensors outputs(const Batch& batch) override;  // logits, hidden
  int64_t num_stages() override;                      // the embedding, every layer, the head
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  Tensor next_logits(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, KvCache& cache) override;
  std::string_view model_type() const override { return "gpt_neox"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const GptNeoxConfig& config() const { return config_; }

 private:
  struct Decoder : Module {
    Decoder(Module& parent, std::string name, const GptNeoxConfig& config);
    Embedding embed_in;
    Dropout emb_dropout;
    ModuleList<GptNeoxBlock> layers;
    LayerNorm final_layer_norm;
  };

  Tensor embed(const Tensor& ids);
  Tensor hidden(const Tensor& ids, KvCache* cache);
  PositionTerms terms(int64_t positions, DType dtype);
  Parameter& head();

  GptNeoxConfig config_;
  Decoder gpt_neox_;
  std::optional<Linear> embed_out_;  // absent where it shares embed_in
  Buffer table_;                     // cosines and sines
};

}  // namespace zinc::nn
