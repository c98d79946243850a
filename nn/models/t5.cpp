#include "nn/models/t5.h"

#include <cmath>
#include <utility>
#include <vector>

#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/relative_position.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/split.h"
#include "autograd/ops/unary.h"
#include "autograd/ops/where.h"
#include "core/error.h"
#include "nn/attention/positions.h"
#include "nn/decoder.h"
#include "nn/encoder.h"

namespace zinc::nn {
namespace {

const T5Config& validated(const T5Config& config) {
  config.validate();
  return config;
}

// Standard deviations of the published models: factor / sqrt(size).
autograd::Initializer weights_of(const T5Config& config, int64_t size) {
  return autograd::Initializer::normal(config.initializer_factor /
                                       std::sqrt(static_cast<double>(size)));
}

// A projection without bias. If it is split by columns, its inputs are spread.
LinearOptions projection(const T5Config& config, int64_t in, int64_t out, int64_t size, Split split,
                         autograd::Activation activation = autograd::Activation::none) {
  return {.in = in,
          .out = out,
          .bias = false,
          .activation = activation,
          .initializer = weights_of(config, size),
          .split = split,
          .spread = split == Split::columns};
}

RMSNormOptions norm_of(const T5Config& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

bool is_gated(const T5Config& config) { return config.activation == T5Activation::gated_gelu_tanh; }

void require_ids(const Model& model, std::string_view name, const Tensor& ids) {
  require(ids.rank() == 2 && ids.dim(1) >= 1, model.model_type(), ": ", name,
          " must be [B, T] with T >= 1, not ", ids.shape());
}

}  // namespace

T5Attention::T5Attention(Module& parent, std::string name, const T5Config& config, bool has_table,
                         bool causal)
    : AttentionLayer(parent, std::move(name),
                     {.heads = config.num_heads,
                      .head_dim = config.head_size,
                      .causal = causal,
                      .scale = 1.0,
                      .dropout = config.dropout}),
      q_(*this, "q",
         projection(config, config.hidden_size, config.attention_size(),
                    config.hidden_size * config.head_size, Split::columns)),
      k_(*this, "k",
         projection(config, config.hidden_size, config.attention_size(), config.hidden_size,
                    Split::columns)),
      v_(*this, "v",
         projection(config, config.hidden_size, config.attention_size(), config.hidden_size,
                    Split::columns)),
      o_(*this, "o",
         projection(config, config.attention_size(), config.hidden_size, config.attention_size(),
                    Split::rows)) {
  if (has_table) {
    relative_attention_bias_.emplace(
        *this, "relative_attention_bias",
        EmbeddingOptions{.count = config.relative_buckets,
                         .features = config.num_heads,
                         .initializer = weights_of(config, config.hidden_size)});
  }
}

Tensor T5Attention::forward(const Tensor& x, const AttentionScope& scope,
                            const PositionTerms& positions) {
  // Gradients of x are added in this order.
  std::vector<Tensor> rows = Linear::of_one_input(x, {&v_, &k_, &q_});
  return o_.forward(
      attend({.q = std::move(rows[2]), .k = std::move(rows[1]), .v = std::move(rows[0])}, scope,
             positions));
}

Tensor T5Attention::forward_across(const Tensor& x, const Tensor& source,
                                   const AttentionScope& scope) {
  const Tensor queries = Linear::of_one_input(x, {&q_})[0];
  const auto rows = [&] {
    std::vector<Tensor> both = Linear::of_one_input(source, {&v_, &k_});
    return std::pair(std::move(both[1]), std::move(both[0]));
  };
  return o_.forward(attend_across(queries, rows, scope));
}

T5Block::AttentionPart::AttentionPart(Module& parent, std::string name, std::string attention_name,
                                      const T5Config& config, bool has_table, bool causal)
    : Module(parent, std::move(name)),
      attention(*this, std::move(attention_name), config, has_table, causal),
      norm(*this, "layer_norm", norm_of(config)),
      dropout(*this, "dropout", config.dropout) {}

T5Block::Dense::Dense(Module& parent, std::string name, const T5Config& config)
    : Module(parent, std::move(name)),
      in(*this, is_gated(config) ? "wi_0" : "wi",
         projection(
             config, config.hidden_size, config.intermediate_size, config.hidden_size,
             Split::columns,
             is_gated(config) ? autograd::Activation::gelu_tanh : autograd::Activation::none)),
      wo(*this, "wo",
         projection(config, config.intermediate_size, config.hidden_size, config.intermediate_size,
                    Split::rows)),
      dropout(*this, "dropout", config.dropout) {
  if (is_gated(config)) {
    up.emplace(*this, "wi_1",
               projection(config, config.hidden_size, config.intermediate_size, config.hidden_size,
                          Split::columns));
  }
}

Tensor T5Block::Dense::forward(const Tensor& x) {
  if (!up) {
    const Tensor inner = autograd::relu(Linear::of_one_input(x, {&in})[0]);
    return wo.forward(dropout.of_own_features(inner, wo.options().in));
  }
  const std::vector<Tensor> rows = Linear::of_one_input(x, {&in, &*up});
  return wo.forward(dropout.of_own_features(autograd::mul(rows[0], rows[1]), wo.options().in));
}

T5Block::FeedForwardLayer::FeedForwardLayer(Module& parent, std::string name,
                                            const T5Config& config)
    : Module(parent, std::move(name)),
      dense(*this, "DenseReluDense", config),
      norm(*this, "layer_norm", norm_of(config)),
      dropout(*this, "dropout", config.dropout) {}

T5Block::T5Block(Module& parent, std::string name, const T5Config& config, bool decodes)
    : Module(parent, std::move(name)),
      layer_(*this, "layer"),
      self_(layer_, "0", "SelfAttention", config, this->name() == "0", decodes),
      feed_forward_(layer_, decodes ? "2" : "1", config) {
  if (decodes) cross_.emplace(layer_, "1", "EncDecAttention", config, false, false);
  mark_shard_unit();
}

Tensor T5Block::encode(const Tensor& x, const Tensor& bias, const AttentionScope& scope) {
  const Tensor attended = self_.attention.forward(self_.norm.forward(x), scope, {.bias = bias});
  return with_dense(x, self_.dropout.forward(attended));
}

Tensor T5Block::decode(const Tensor& x, const Tensor& bias, const Tensor& source,
                       const AttentionScope& scope) {
  const Tensor attended = self_.attention.forward(self_.norm.forward(x), scope, {.bias = bias});
  const autograd::ResidualNorm after = cross_->norm.forward(x, self_.dropout.forward(attended));
  const Tensor crossed = cross_->attention.forward_across(after.normed, source, scope);
  return with_dense(after.sum, cross_->dropout.forward(crossed));
}

Tensor T5Block::with_dense(const Tensor& x, const Tensor& attended) {
  const autograd::ResidualNorm after = feed_forward_.norm.forward(x, attended);
  const Tensor inner = feed_forward_.dense.forward(after.normed);
  return autograd::add(after.sum, feed_forward_.dropout.forward(inner));
}

T5::Stack::Stack(Module& parent, std::string name, const T5Config& config, bool decodes)
    : Module(parent, std::move(name)),
      block(*this, "block", decodes ? config.decoder_layers() : config.num_layers, config, decodes),
      final_layer_norm(*this, "final_layer_norm", norm_of(config)),
      dropout(*this, "dropout", config.dropout),
      buckets([config, decodes](int64_t positions, DType) {
        return TensorList{autograd::make_relative_buckets(
            positions, {.buckets = config.relative_buckets,
                        .max_distance = config.relative_max_distance,
                        .bidirectional = !decodes})};
      }) {}

T5::T5(const T5Config& config)
    : config_(validated(config)),
      shared_(*this, "shared",
              {.count = config.vocab_size,
               .features = config.hidden_size,
               .initializer = weights_of(config, 1),
               .sliced = true}),
      encoder_(*this, "encoder", config, false),
      decoder_(*this, "decoder", config, true),
      head_(*this, "lm_head", shared_, config.tie_word_embeddings, weights_of(config, 1)) {}

Tensor T5::embed(const Tensor& ids, Stack& stack) {
  return stack.dropout.forward(shared_.forward(ids));
}

Tensor T5::end_of(Stack& stack, const Tensor& x) {
  return stack.dropout.forward(stack.final_layer_norm.forward(x));
}

Tensor T5::before_head(const Tensor& x) {
  const Tensor hidden = end_of(decoder_, x);
  if (!head_.is_tied()) return hidden;
  return autograd::scale(hidden, 1.0 / std::sqrt(static_cast<double>(config_.hidden_size)));
}

Tensor T5::bias(Stack& stack, int64_t queries, int64_t keys) {
  const Tensor& buckets = stack.buckets.get(std::max(queries, keys), DType::i32)[0];
  return relative_bias(stack.block[0].table(), buckets, queries, keys);
}

Tensor T5::decoder_ids(const Batch& batch) const {
  const Tensor given = batch.find("decoder_input_ids");
  if (given.defined()) {
    require_ids(*this, "decoder_input_ids", given);
    return given;
  }
  const Tensor& labels = batch["labels"];
  require_ids(*this, "labels", labels);
  const int64_t B = labels.dim(0), U = labels.dim(1);
  std::vector<Tensor> parts{
      Tensor::full(Shape{B, 1}, static_cast<double>(config_.decoder_start_token), labels.dtype())};
  if (U > 1) {
    const Tensor before = autograd::contiguous(labels.narrow_view(1, 0, U - 1));
    const Tensor no_label =
        autograd::compare(autograd::CompareOp::eq, before, static_cast<double>(kIgnoredLabel));
    parts.push_back(
        autograd::masked_fill(before, no_label, static_cast<double>(config_.pad_token)));
  }
  return autograd::concat(parts, 1);
}

int64_t T5::num_stages() { return 3 + encoder_.block.size() + decoder_.block.size(); }

bool T5::is_block(int64_t index) {
  return 0 < index && index != encoder_.block.size() + 1 && index + 1 < num_stages();
}

TensorList T5::stage(int64_t index, const Batch& batch, TensorList x) {
  const int64_t turn = encoder_.block.size() + 1;
  if (index == 0) {
    require_one_document(*this, batch);
    require_ids(*this, "input_ids", batch["input_ids"]);
    return {embed(batch["input_ids"], encoder_), embed(decoder_ids(batch), decoder_)};
  }
  if (index < turn) {
    const int64_t T = x[0].dim(1);
    if (index == 1) x.push_back(bias(encoder_, T, T));
    x[0] = encoder_.block[index - 1].encode(x[0], x[2], scope_of(batch));
    return x;
  }
  if (index == turn) return {x[1], end_of(encoder_, x[0])};
  if (is_block(index)) {
    const int64_t U = x[0].dim(1);
    if (index == turn + 1) x.push_back(bias(decoder_, U, U));
    x[0] = decoder_.block[index - turn - 1].decode(x[0], x[2], x[1],
                                                   {.source_lengths = batch.find("lengths")});
    return x;
  }
  const Tensor& labels = batch["labels"];
  require(labels.rank() == 2 && labels.dim(1) == x[0].dim(1), "t5: labels ", labels.shape(),
          " must be as many as the decoder_input_ids, ", x[0].dim(1),
          " a text; leave decoder_input_ids out to have them made of the labels");
  return {head_.loss(before_head(std::exchange(x[0], {})), labels)};
}

NamedTensors T5::outputs(const Batch& batch) {
  const TensorList x = before_last_stage(*this, batch);
  const Tensor hidden = end_of(decoder_, x[0]);
  const Tensor scaled = head_.is_tied() ? before_head(x[0]) : hidden;
  return {{"logits", head_.logits(scaled)}, {"hidden", hidden}, {"encoder_hidden", x[1]}};
}

Tensor T5::encoded(const Batch& batch) {
  const Tensor& ids = batch["input_ids"];
  require_one_document(*this, batch);
  require_ids(*this, "input_ids", ids);
  Tensor x = embed(ids, encoder_);
  const Tensor by_distance = bias(encoder_, ids.dim(1), ids.dim(1));
  for (T5Block& block : encoder_.block) x = block.encode(x, by_distance, scope_of(batch));
  return end_of(encoder_, x);
}

Tensor T5::answered(const Tensor& ids, const Tensor& source, const AttentionScope& scope) {
  require_ids(*this, "the decoder's ids", ids);
  Tensor x = embed(ids, decoder_);
  const Tensor by_distance = bias(decoder_, ids.dim(1), start_of(scope) + ids.dim(1));
  for (T5Block& block : decoder_.block) x = block.decode(x, by_distance, source, scope);
  return head_.last_logits(before_head(x));
}

std::string_view T5::note_on(DType dtype) const {
  if (dtype != DType::f16) return {};
  return "activations of published T5 models overflow in f16, most of all of the large ones: "
         "prefer bf16, which has the range of f32";
}

// Counted by hand. Lookups in the embedding and the tables are free. Attention of the encoder and
// across is in both directions; that of the decoder is causal, where half is masked out.
double T5::flops_per_token(int64_t sequence) {
  const int64_t C = config_.hidden_size, I = config_.attention_size();
  const int64_t dense = (is_gated(config_) ? 3 : 2) * C * config_.intermediate_size;
  const int64_t layers = config_.num_layers, decoder_layers = config_.decoder_layers();
  const int64_t multiplied =
      layers * (4 * C * I + dense) + decoder_layers * (8 * C * I + dense) + C * config_.vocab_size;
  return encoder_flops_per_token(multiplied, layers + decoder_layers, I, sequence) +
         decoder_flops_per_token(0, decoder_layers, I, sequence);
}

}  // namespace zinc::nn
