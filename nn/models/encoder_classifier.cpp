#include "nn/models/encoder_classifier.h"

#include <cmath>
#include <string>
#include <utility>

#include "autograd/functions/padding.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/unary.h"
#include "core/error.h"
#include "nn/decoder.h"
#include "nn/encoder.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

const EncoderClassifierConfig& validated(const EncoderClassifierConfig& config) {
  config.validate();
  return config;
}

LayerNormOptions norm_of(const EncoderClassifierConfig& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

// Vaswani et al. 2017, section 3.5: sines in even features, cosines in odd ones.
Tensor sinusoids(int64_t positions, int64_t features, DType dtype) {
  std::vector<double> values;
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t c = 0; c < features; ++c) {
      const double rate = std::exp(static_cast<double>(c - c % 2) *
                                   (-std::log(10000.0) / static_cast<double>(features)));
      const double angle = static_cast<double>(t) * rate;
      values.push_back(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return Tensor::from(values, Shape{positions, features}, dtype);
}

}  // namespace

int64_t EncoderClassifierConfig::num_parameters() const {
  const int64_t C = hidden_size, F = intermediate_size, I = inner_size();
  const int64_t layer = 4 * (C * C + C) + (C * F + F) + (F * C + C) + 4 * C;
  return vocab_size * C + num_layers * layer + (C * I + I) + (I * num_classes + num_classes);
}

void EncoderClassifierConfig::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("max_position_embeddings", max_positions);
  check.positive("hidden_size", hidden_size);
  check.positive("num_hidden_layers", num_layers);
  check.positive("num_attention_heads", num_heads);
  check.positive("intermediate_size", intermediate_size);
  check.that(hidden_size % num_heads == 0 && hidden_size % 2 == 0, "hidden_size (", hidden_size,
             ") must be even, and a multiple of num_attention_heads (", num_heads, ")");
  check.that(num_classes >= 2, "num_labels must be 2 or more classes, not ", num_classes);
  check.positive("layer_norm_eps", layer_norm_epsilon);
  check.rate("dropout", dropout);
  check.that(pad_token >= -1 && pad_token < vocab_size,
             "pad_token_id must be a token of the vocabulary, not ", pad_token);
}

TorchEncoderLayer::TorchEncoderLayer(Module& parent, std::string name,
                                     const EncoderClassifierConfig& config)
    : Module(parent, std::move(name)),
      self_attn_(*this, "self_attn", config.hidden_size, config.num_heads, config.dropout),
      linear1_(
          *this, "linear1",
          {.in = config.hidden_size, .out = config.intermediate_size, .split = Split::columns}),
      linear2_(*this, "linear2",
               {.in = config.intermediate_size, .out = config.hidden_size, .split = Split::rows}),
      norm1_(*this, "norm1", norm_of(config)),
      norm2_(*this, "norm2", norm_of(config)),
      dropout_(*this, "dropout", config.dropout),
      dropout1_(*this, "dropout1", config.dropout),
      dropout2_(*this, "dropout2", config.dropout) {
  mark_shard_unit();
}

Tensor TorchEncoderLayer::forward(const Tensor& x, const AttentionScope& scope) {
  const Tensor attended = norm1_.forward(dropout1_.forward(self_attn_.forward(x, scope)), x).normed;
  const Tensor inner =
      dropout_.of_own_features(autograd::relu(linear1_.forward(attended)), linear2_.options().in);
  return norm2_.forward(dropout2_.forward(linear2_.forward(inner)), attended).normed;
}

EncoderClassifier::Encoder::Encoder(Module& parent, std::string name,
                                    const EncoderClassifierConfig& config)
    : Module(parent, std::move(name)), layers(*this, "layers", config.num_layers, config) {}

EncoderClassifier::Classifier::Classifier(Module& parent, std::string name,
                                          const EncoderClassifierConfig& config)
    : Module(parent, std::move(name)),
      first(*this, "0", {.in = config.hidden_size, .out = config.inner_size()}),
      dropout(*this, "2", config.dropout),
      last(*this, "3", {.in = config.inner_size(), .out = config.num_classes}) {}

Tensor EncoderClassifier::Classifier::forward(const Tensor& x) {
  return last.forward(dropout.forward(autograd::relu(first.forward(x))));
}

EncoderClassifier::EncoderClassifier(const EncoderClassifierConfig& config)
    : config_(validated(config)),
      embedding_(*this, "embedding", {.count = config.vocab_size, .features = config.hidden_size}),
      dropout_(*this, "dropout", config.dropout),
      encoder_(*this, "encoder", config),
      classifier_(*this, "classifier", config),
      positions_([width = config.hidden_size](int64_t positions, DType dtype) {
        return TensorList{sinusoids(positions, width, dtype)};
      }) {}

Batch EncoderClassifier::example(int64_t sequences, int64_t positions) const {
  Batch batch = Model::example(sequences, positions);
  batch.tensors.set("labels", Tensor::zeros(Shape{sequences}, DType::i32));
  batch.num_targets = sequences;
  return batch;
}

Tensor EncoderClassifier::embed(const Batch& batch) {
  require_one_document(*this, batch);
  const Tensor& ids = batch["input_ids"];
  require_sequence(*this, ids);
  const Tensor tokens =
      autograd::embedding(ids, embedding_.weight(), {}, {.ignored_id = config_.pad_token});
  const Tensor& table = positions_.get(ids.dim(1), tokens.dtype())[0];
  return dropout_.forward(autograd::add(tokens, table.narrow_view(0, 0, ids.dim(1))));
}

int64_t EncoderClassifier::num_stages() { return 2 + encoder_.layers.size(); }

TensorList EncoderClassifier::stage(int64_t index, const Batch& batch, TensorList x) {
  if (index == 0) return {embed(batch)};
  if (is_block(index)) return {encoder_.layers[index - 1].forward(x[0], scope_of(batch))};
  const Tensor& labels = batch["labels"];
  require_labels(*this, EncoderTask::sequence_classification, batch["input_ids"], labels);
  const Tensor pooled = autograd::mean_over_tokens(std::exchange(x[0], {}), batch.find("lengths"));
  return {autograd::cross_entropy(classifier_.forward(pooled), labels)};
}

NamedTensors EncoderClassifier::outputs(const Batch& batch) {
  const Tensor hidden = before_last_stage(*this, batch)[0];
  const Tensor pooled = autograd::mean_over_tokens(hidden, batch.find("lengths"));
  return {{"logits", autograd::cast(classifier_.forward(pooled), DType::f32)},
          {"hidden", hidden},
          {"pooled", pooled}};
}

// Counts the layers alone: the classifier sees one vector for a text.
double EncoderClassifier::flops_per_token(int64_t sequence) {
  const int64_t C = config_.hidden_size;
  const int64_t layer = 4 * C * C + 2 * C * config_.intermediate_size;
  return encoder_flops_per_token(config_.num_layers * layer, config_.num_layers, C, sequence);
}

}  // namespace zinc::nn
