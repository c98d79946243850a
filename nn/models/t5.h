// nn/models/t5.h: T5 (Raffel et al. 2020), of version 1.1 too, as Hugging Face's
// T5ForConditionalGeneration.
//
// A batch has "input_ids" [B, T] and "lengths" for the encoder, and for the decoder "labels"
// [B, U]. The decoder's input is "decoder_input_ids" [B, U], or else the labels one place later,
// behind decoder_start_token, with pad_token where there is no label. No text has a longest length.
//
// In f16 the activations of published models overflow, most of all of the large ones: train and run
// them in bf16.
#pragma once

#include <optional>

#include "nn/attention/attend.h"
#include "nn/buffer.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/encoder_decoder.h"
#include "nn/linear.h"
#include "nn/lm_head.h"
#include "nn/model.h"
#include "nn/models/t5_config.h"
#include "nn/norm.h"
#include "nn/stages.h"

namespace zinc::nn {

// Attention without biases and without a scale of the scores. Members q, k, v, o.
class T5Attention : public AttentionLayer {
 public:
  // has_table: this layer has the stack's table of biases by distance. causal: a token sees the
  // tokens up to itself.
  T5Attention(Module& parent, std::string name, const T5Config& config, bool has_table,
              bool causal);

  // x: [B, T, C] -> [B, T, C], attention within one text.
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);
  // Attention of x [B, U, C] to the tokens of source [B, T, C].
  Tensor forward_across(const Tensor& x, const Tensor& source, const AttentionScope& scope);
  Embedding& relative_attention_bias() { return *relative_attention_bias_; }

 private:
  Linear q_;
  Linear k_;
  Linear v_;
  Linear o_;
  std::optional<Embedding> relative_attention_bias_;  // [buckets, H]
};

// A block of either stack: x + SelfAttention(norm(x)), in the decoder + EncDecAttention(norm(x)),
// then + DenseReluDense(norm(x)).
class T5Block : public Module {
 public:
  // Block "0" has the stack's table.
  T5Block(Module& parent, std::string name, const T5Config& config, bool decodes);

  // In an encoder: x [B, T, C]; bias [H, 2 T - 1].
  Tensor encode(const Tensor& x, const Tensor& bias, const AttentionScope& scope);
  // In a decoder: x [B, U, C]; `source` is the encoder's output [B, T, C].
  Tensor decode(const Tensor& x, const Tensor& bias, const Tensor& source,
                const AttentionScope& scope);

  Embedding& table() { return self_.attention.relative_attention_bias(); }

 private:
  struct AttentionPart : Module {
    AttentionPart(Module& parent, std::string name, std::string attention_name,
                  const T5Config& config, bool has_table, bool causal);
    T5Attention attention;
    RMSNorm norm;
    Dropout dropout;
  };
  struct Dense : Module {
    Dense(Module& parent, std::string name, const T5Config& config);
    Tensor forward(const Tensor& x);
    Linear in;                 // wi, or wi_0 with GELU
    std::optional<Linear> up;  // wi_1
    Linear wo;
    Dropout dropout;
  };
  struct FeedForwardLayer : Module {
    FeedForwardLayer(Module& parent, std::string name, const T5Config& config);
    Dense dense;
    RMSNorm norm;
    Dropout dropout;
  };

  Tensor with_dense(const Tensor& x, const Tensor& attended);

  Module layer_;
  AttentionPart self_;
  std::optional<AttentionPart> cross_;
  FeedForwardLayer feed_forward_;
};

class T5 : public EncoderDecoder, public Staged, public HasOutputs {
 public:
  explicit T5(const T5Config& config);  // throws ConfigError where it is inconsistent

  // Uses 512 positions, the length that T5 was trained with, if `positions` is 0.
  Batch example(int64_t sequences, int64_t positions) const override {
    return Model::example(sequences, positions > 0 ? positions : 512);
  }
  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  // logits and hidden of the decoder, encoder_hidden [B, T, C].
  NamedTensors outputs(const Batch& batch) override;
  // The embeddings of both stacks, every block of the encoder; its end, every block of the decoder,
  // the head. Between blocks of the encoder the lists hold its hidden state, the decoder's
  // embedding and the bias; between those of the decoder its hidden state, the encoder's and the
  // bias. So no stage but the first looks up the table, and the ranks of a pipeline sum the table's
  // gradient in the same order wherever the cut is. The bias has all heads and is the same on all
  // tensor ranks.
  int64_t num_stages() override;
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  bool is_block(int64_t index) override;
  Linear* logits_layer() override { return head_.layer(); }
  int64_t decoder_start_token() const override { return config_.decoder_start_token; }
  std::string_view model_type() const override { return "t5"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.decoder_layers() * config_.attention_size();
  }
  // Per token of the encoder's input, with labels as long as that input.
  double flops_per_token(int64_t sequence) override;
  std::string_view note_on(DType dtype) const override;  // f16 overflows
  const T5Config& config() const { return config_; }

 private:
  struct Stack : Module {
    Stack(Module& parent, std::string name, const T5Config& config, bool decodes);
    ModuleList<T5Block> block;
    RMSNorm final_layer_norm;
    Dropout dropout;  // for the embedding and for the end of the stack
    Buffer buckets;   // buckets by distance, for the table
  };

  Tensor encoded(const Batch& batch) override;
  Tensor answered(const Tensor& ids, const Tensor& source, const AttentionScope& scope) override;
  Tensor embed(const Tensor& ids, Stack& stack);
  Tensor bias(Stack& stack, int64_t queries, int64_t keys);
  Tensor decoder_ids(const Batch& batch) const;
  Tensor end_of(Stack& stack, const Tensor& x);
  Tensor before_head(const Tensor& x);  // the end of the decoder, up to the head

  T5Config config_;
  Embedding shared_;
  Stack encoder_;
  Stack decoder_;
  LmHead head_;
};

}  // namespace zinc::nn
