// nn/models/encoder_classifier.h: a classifier of texts around torch.nn.TransformerEncoder (Vaswani
// et al. 2017), with torch's names: an embedding, sinusoidal positions, post-norm layers with ReLU,
// the mean over a text's tokens, and Linear, ReLU, Dropout, Linear.
//
// A PyTorch module of the same weights has the members
//   embedding    nn.Embedding(vocab_size, hidden_size)
//   encoder      nn.TransformerEncoder(nn.TransformerEncoderLayer(..., batch_first=True), layers)
//   classifier   nn.Sequential(Linear, ReLU, Dropout, Linear)
// A batch's "labels" are [B]; its "lengths" end the texts.
#pragma once

#include <string_view>
#include <vector>

#include "nn/attention/self_attention.h"
#include "nn/buffer.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/model.h"
#include "nn/norm.h"
#include "nn/stages.h"

namespace zinc::nn {

// The key of config.json stands beside each field. Defaults are torch's.
struct EncoderClassifierConfig {
  int64_t vocab_size = 0;            // vocab_size
  int64_t max_positions = 512;       // max_position_embeddings: longest sequence
  int64_t hidden_size = 512;         // hidden_size: torch's d_model, even
  int64_t num_layers = 6;            // num_hidden_layers
  int64_t num_heads = 8;             // num_attention_heads: torch's nhead
  int64_t intermediate_size = 2048;  // intermediate_size: torch's dim_feedforward
  int64_t classifier_size = 0;       // classifier_size: between the two last; 0: hidden_size
  int64_t num_classes = 2;           // num_labels
  double dropout = 0.1;              // dropout: everywhere
  double layer_norm_epsilon = 1e-5;  // layer_norm_eps
  int64_t pad_token = -1;            // pad_token_id: its row of the embedding has no gradient;
                                     // -1: none
  static constexpr bool tie_word_embeddings = false;
  std::vector<int64_t> eos_tokens{};  // eos_token_id

  std::string_view model_type() const { return "encoder_classifier"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return intermediate_size; }
  int64_t inner_size() const { return classifier_size > 0 ? classifier_size : hidden_size; }
  int64_t num_parameters() const;
  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  friend bool operator==(const EncoderClassifierConfig&, const EncoderClassifierConfig&) = default;
};

// torch.nn.TransformerEncoderLayer: norm1(x + self_attn(x)), then norm2(x +
// linear2(relu(linear1(x)))).
class TorchEncoderLayer : public Module {
 public:
  TorchEncoderLayer(Module& parent, std::string name, const EncoderClassifierConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope);  // [B, T, C] -> [B, T, C]

 private:
  MultiheadAttention self_attn_;
  Linear linear1_;
  Linear linear2_;
  LayerNorm norm1_;
  LayerNorm norm2_;
  Dropout dropout_;
  Dropout dropout1_;
  Dropout dropout2_;
};

class EncoderClassifier : public Model, public Staged, public HasOutputs {
 public:
  explicit EncoderClassifier(const EncoderClassifierConfig& config);  // throws as validate()

  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  Batch example(int64_t sequences, int64_t positions) const override;
  NamedTensors outputs(const Batch& batch) override;  // logits, hidden, pooled
  int64_t num_stages() override;                      // the embedding, every layer, the classifier
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  std::string_view model_type() const override { return config_.model_type(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const EncoderClassifierConfig& config() const { return config_; }

 private:
  struct Encoder : Module {
    Encoder(Module& parent, std::string name, const EncoderClassifierConfig& config);
    ModuleList<TorchEncoderLayer> layers;
  };
  struct Classifier : Module {
    Classifier(Module& parent, std::string name, const EncoderClassifierConfig& config);
    Tensor forward(const Tensor& x);
    Linear first;     // "0"
    Dropout dropout;  // "2"
    Linear last;      // "3"
  };

  Tensor embed(const Batch& batch);

  EncoderClassifierConfig config_;
  Embedding embedding_;
  Dropout dropout_;
  Encoder encoder_;
  Classifier classifier_;
  Buffer positions_;  // [T, C]
};

}  // namespace zinc::nn
