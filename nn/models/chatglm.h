// nn/models/chatglm.h: ChatGLM2 and ChatGLM3 (Z.AI, 2023), as the ChatGLMForConditionalGeneration
// of their published folders.
#pragma once

#include "nn/attention/self_attention.h"
#include "nn/buffer.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/models/chatglm_config.h"
#include "nn/norm.h"

namespace zinc::nn {

// x + self_attention(input_layernorm(x)), then x + mlp(post_attention_layernorm(x)).
class ChatGlmBlock : public Module {
 public:
  ChatGlmBlock(Module& parent, std::string name, const ChatGlmConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);

 private:
  RMSNorm input_layernorm_;
  SelfAttention self_attention_;
  RMSNorm post_attention_layernorm_;
  PackedGatedMlp mlp_;
};

// Keys and values have a few groups of heads. Rotary positions turn the first half of each head, in
// pairs of neighbours.
class ChatGlm : public Decoder {
 public:
  explicit ChatGlm(const ChatGlmConfig& config);  // throws ConfigError where it is inconsistent

  std::string_view model_type() const override { return config_.model_type(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.num_layers * config_.kv_heads() * config_.head_dim();
  }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const ChatGlmConfig& config() const { return config_; }

 private:
  struct Words : Module {
    Words(Module& parent, std::string name, const ChatGlmConfig& config);
    Embedding word_embeddings;
  };
  struct Encoder : Module {  // the published files name the decoder's layers "encoder"
    Encoder(Module& parent, std::string name, const ChatGlmConfig& config);
    ModuleList<ChatGlmBlock> layers;
    RMSNorm final_layernorm;
  };
  struct Transformer : Module {
    Transformer(Module& parent, std::string name, const ChatGlmConfig& config);
    Words embedding;
    Encoder encoder;
    LmHead output_layer;
  };

  int64_t num_layers() const override { return config_.num_layers; }
  Tensor embed(const Tensor& ids, const AttentionScope& scope) override;
  PositionTerms terms(int64_t layer, int64_t count, DType dtype) override;
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override;
  Tensor final_norm(const Tensor& x) override {
    return transformer_.encoder.final_layernorm.forward(x);
  }
  LmHead& head() override { return transformer_.output_layer; }

  ChatGlmConfig config_;
  Transformer transformer_;
  Buffer table_;  // cosines and sines
};

}  // namespace zinc::nn
