#include "nn/models/bert.h"

#include <utility>
#include <vector>

#include "autograd/functions/padding.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/unary.h"
#include "core/error.h"
#include "nn/attention/positions.h"
#include "nn/decoder.h"

namespace zinc::nn {
namespace {

const BertConfig& validated(const BertConfig& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const BertConfig& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

LinearOptions projection(const BertConfig& config, int64_t in, int64_t out,
                         autograd::Activation activation = autograd::Activation::none) {
  return {.in = in, .out = out, .activation = activation, .initializer = weights_of(config)};
}

LinearOptions square_of(const BertConfig& config) {
  return projection(config, config.hidden_size, config.hidden_size);
}

LinearOptions sliced(LinearOptions options, Split split, bool spread = false) {
  options.split = split;
  options.spread = spread;
  return options;
}

LayerNormOptions norm_of(const BertConfig& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

EmbeddingOptions table_of(const BertConfig& config, int64_t count, bool is_sliced = false) {
  return {.count = count,
          .features = config.hidden_size,
          .initializer = weights_of(config),
          .sliced = is_sliced};
}

bool is_roberta(const BertConfig& config) { return config.kind == BertKind::roberta; }

bool is_classifier(const BertConfig& config) {
  return config.task == EncoderTask::sequence_classification ||
         config.task == EncoderTask::token_classification;
}

using InnerModule = std::optional<Module>;

}  // namespace

BertOutput::BertOutput(Module& parent, std::string name, const BertConfig& config, int64_t in)
    : Module(parent, std::move(name)),
      dense_(*this, "dense", sliced(projection(config, in, config.hidden_size), Split::rows)),
      norm_(*this, "LayerNorm", norm_of(config)),
      dropout_(*this, "dropout", config.hidden_dropout) {}

Tensor BertOutput::forward(const Tensor& x, const Tensor& residual) {
  return norm_.forward(dropout_.forward(dense_.forward(x)), residual).normed;
}

BertLayer::SelfAttention::SelfAttention(Module& parent, std::string name, const BertConfig& config)
    : AttentionLayer(parent, std::move(name),
                     {.heads = config.num_heads,
                      .head_dim = config.hidden_size / config.num_heads,
                      .causal = false,
                      .dropout = config.attention_dropout}),
      query(*this, "query", sliced(square_of(config), Split::columns, true)),
      key(*this, "key", sliced(square_of(config), Split::columns, true)),
      value(*this, "value", sliced(square_of(config), Split::columns, true)) {}

Tensor BertLayer::SelfAttention::forward(const Tensor& x, const AttentionScope& scope) {
  // Gradients of x are added in this order.
  std::vector<Tensor> rows = Linear::of_one_input(x, {&value, &key, &query});
  return attend({.q = std::move(rows[2]), .k = std::move(rows[1]), .v = std::move(rows[0])}, scope);
}

BertLayer::Attention::Attention(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      self(*this, "self", config),
      output(*this, "output", config, config.hidden_size) {}

BertLayer::Intermediate::Intermediate(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      dense(*this, "dense",
            sliced(projection(config, config.hidden_size, config.intermediate_size,
                              autograd::Activation::gelu_erf),
                   Split::columns)) {}

BertLayer::BertLayer(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      attention_(*this, "attention", config),
      intermediate_(*this, "intermediate", config),
      output_(*this, "output", config, config.intermediate_size) {
  mark_shard_unit();
}

Tensor BertLayer::forward(const Tensor& x, const AttentionScope& scope) {
  const Tensor attended = attention_.output.forward(attention_.self.forward(x, scope), x);
  return output_.forward(intermediate_.dense.forward(attended), attended);
}

Bert::Embeddings::Embeddings(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)),
      word_embeddings(*this, "word_embeddings", table_of(config, config.vocab_size, true)),
      position_embeddings(*this, "position_embeddings",
                          table_of(config, config.max_positions + config.first_position())),
      token_type_embeddings(*this, "token_type_embeddings",
                            table_of(config, config.type_vocab_size)),
      norm(*this, "LayerNorm", norm_of(config)),
      dropout(*this, "dropout", config.hidden_dropout) {}

Bert::Encoder::Encoder(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)), layer(*this, "layer", config.num_layers, config) {}

Bert::Pooler::Pooler(Module& parent, std::string name, const BertConfig& config)
    : Module(parent, std::move(name)), dense(*this, "dense", square_of(config)) {}

Bert::Body::Body(Module& parent, const BertConfig& config)
    : Module(parent, std::string(config.model_type())),
      embeddings(*this, "embeddings", config),
      encoder(*this, "encoder", config) {
  if (config.has_pooler()) pooler.emplace(*this, "pooler", config);
}

Bert::LmHead::LmHead(Module& parent, const BertConfig& config)
    : Module(parent, is_roberta(config) ? "lm_head" : "cls"),
      predictions(is_roberta(config) ? InnerModule()
                                     : InnerModule(std::in_place, *this, "predictions")),
      transform(predictions ? InnerModule(std::in_place, *predictions, "transform")
                            : InnerModule()),
      dense(transform ? *transform : *this, "dense",
            projection(config, config.hidden_size, config.hidden_size,
                       autograd::Activation::gelu_erf)),
      norm(transform ? *transform : *this, is_roberta(config) ? "layer_norm" : "LayerNorm",
           norm_of(config)),
      bias(predictions ? *predictions : *this, "bias", Shape{config.vocab_size},
           autograd::Initializer::zeros()) {}

Bert::ClassificationHead::ClassificationHead(Module& parent, std::string name,
                                             const BertConfig& config)
    : Module(parent, std::move(name)),
      dense(*this, "dense", square_of(config)),
      out_proj(*this, "out_proj", projection(config, config.hidden_size, config.num_classes)) {}

Bert::Bert(const BertConfig& config) : config_(validated(config)), body_(*this, config) {
  if (config.task == EncoderTask::masked_lm) {
    lm_head_.emplace(*this, config);
    tied_head_.emplace(body_.embeddings.word_embeddings, lm_head_->bias);
  }
  if (!is_classifier(config)) return;
  dropout_.emplace(
      *this, "dropout",
      config.classifier_dropout < 0.0 ? config.hidden_dropout : config.classifier_dropout);
  if (is_roberta(config) && config.task == EncoderTask::sequence_classification) {
    classification_head_.emplace(*this, "classifier", config);
  } else {
    classifier_.emplace(*this, "classifier",
                        projection(config, config.hidden_size, config.num_classes));
  }
}

Batch Bert::example(int64_t sequences, int64_t positions) const {
  Batch batch = Model::example(sequences, positions);
  if (config_.task == EncoderTask::sequence_classification) {
    batch.tensors.set("labels", Tensor::zeros(Shape{sequences}, DType::i32));
    batch.num_targets = sequences;
  }
  return batch;
}

Tensor Bert::with_positions(const Tensor& ids) {
  Embeddings& tables = body_.embeddings;
  return embed_with_positions(tables.word_embeddings, tables.position_embeddings, ids, {},
                              {.first = config_.first_position(), .ignored_id = config_.pad_token});
}

Tensor Bert::embed(const Batch& batch) {
  require_one_document(*this, batch);
  const Tensor& ids = batch["input_ids"];
  require_sequence(*this, ids);
  Tensor types = batch.find("token_type_ids");
  if (!types.defined()) types = Tensor::zeros(ids.shape(), DType::i32);
  Embeddings& tables = body_.embeddings;
  const Tensor tokens = with_positions(ids);
  const Tensor kinds = tables.token_type_embeddings.forward(types);
  return tables.dropout.forward(tables.norm.forward(tokens, kinds).normed);
}

int64_t Bert::num_stages() { return 2 + body_.encoder.layer.size(); }

TensorList Bert::stage(int64_t index, const Batch& batch, TensorList x) {
  if (index == 0) return {embed(batch)};
  if (is_block(index)) {
    return {body_.encoder.layer[index - 1].forward(x[0], scope_of(batch))};
  }
  return {loss_of(std::exchange(x[0], {}), batch)};
}

Tensor Bert::lm_hidden(const Tensor& hidden) {
  return lm_head_->norm.forward(lm_head_->dense.forward(hidden));
}

Tensor Bert::pooled(const Tensor& hidden, const Batch& batch) {
  if (!body_.pooler) return autograd::mean_over_tokens(hidden, batch.find("lengths"));
  return autograd::tanh(body_.pooler->dense.forward(first_token(hidden)));
}

Tensor Bert::class_logits(const Tensor& hidden, const Batch& batch) {
  if (classification_head_) {
    const Tensor first = dropout_->forward(first_token(hidden));
    const Tensor inner = autograd::tanh(classification_head_->dense.forward(first));
    return classification_head_->out_proj.forward(dropout_->forward(inner));
  }
  const bool of_tokens = config_.task == EncoderTask::token_classification;
  return classifier_->forward(dropout_->forward(of_tokens ? hidden : pooled(hidden, batch)));
}

Tensor Bert::loss_of(const Tensor& hidden, const Batch& batch) {
  require(config_.task != EncoderTask::none, model_type(),
          ": a model of the task none has no loss; make it for masked_lm, "
          "sequence_classification or token_classification to train it");
  const Tensor& labels = batch["labels"];
  require_labels(*this, config_.task, batch["input_ids"], labels);
  if (!lm_head_) return autograd::cross_entropy(class_logits(hidden, batch), labels);
  return tied_head_->loss(lm_hidden(hidden), labels);
}

Tensor Bert::lm_logits(const Tensor& hidden) { return tied_head_->logits(lm_hidden(hidden)); }

NamedTensors Bert::outputs(const Batch& batch) {
  const Tensor hidden = before_last_stage(*this, batch)[0];
  if (config_.task == EncoderTask::none) {
    return {{"hidden", hidden}, {"pooled", pooled(hidden, batch)}};
  }
  const Tensor logits = lm_head_ ? lm_logits(hidden) : class_logits(hidden, batch);
  return {{"logits", autograd::cast(logits, DType::f32)}, {"hidden", hidden}};
}

// Counted by hand: lookups in tables are free, but the embedding is a factor in the head of
// masked_lm. Heads that see one token of a row are left out.
double Bert::flops_per_token(int64_t sequence) {
  const int64_t C = config_.hidden_size;
  const int64_t layer = 4 * C * C + 2 * C * config_.intermediate_size;
  int64_t multiplied = config_.num_layers * layer;
  if (lm_head_) multiplied += C * C + C * config_.vocab_size;
  if (config_.task == EncoderTask::token_classification) multiplied += C * config_.num_classes;
  return encoder_flops_per_token(multiplied, config_.num_layers, C, sequence);
}

}  // namespace zinc::nn
