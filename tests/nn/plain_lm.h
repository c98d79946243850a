// tests/nn/plain_lm.h: a family written by one who knows of no ranks, caches or padding. It has
// what models of today vary: value heads of another size, sinks, softcaps, a scale of its own,
// norms of heads, windows, layers without positions and with another rotary table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/attention/attend.h"
#include "nn/buffer.h"
#include "nn/decoder.h"
#include "nn/embedding.h"
#include "nn/lm_head.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace zinc::nn::test {

struct PlainConfig {
  int64_t vocab_size = 37, hidden_size = 24, layers = 3, heads = 4, kv_heads = 4;
  int64_t head_dim = 8, value_dim = 6, positions = 64;
  bool norms = true, sinks = true;
};

class PlainAttention : public AttentionLayer {
 public:
  PlainAttention(Module& parent, std::string name, const PlainConfig& c)
      : AttentionLayer(parent, std::move(name),
                       {.heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .value_dim = c.value_dim,
                        .scale = 0.4,
                        .softcap = 2.0}),
        qkv_(*this, "qkv", packed_heads_projection(c.hidden_size, form())),
        out_(*this, "out",
             {.in = c.heads * c.value_dim, .out = c.hidden_size, .split = Split::rows}) {
    if (c.sinks) {
      sinks_.emplace(*this, "sinks", Shape{c.heads}, autograd::Initializer::normal(1.0));
      add_sinks(*sinks_);
    }
    if (!c.norms) return;
    const RMSNormOptions of_head{.features = c.head_dim, .of_slice = true};
    q_norm_.emplace(*this, "q_norm", of_head);
    k_norm_.emplace(*this, "k_norm", of_head);
    norm_heads(*q_norm_, *k_norm_);
  }
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x, const AttentionScope& scope,
                           const PositionTerms& positions) {
    return out_.forward_onto(residual, attend({.q = qkv_.forward(x)}, scope, positions));
  }

 private:
  Linear qkv_, out_;
  std::optional<Parameter> sinks_;
  std::optional<RMSNorm> q_norm_, k_norm_;
};

struct PlainBlock : Module {
  PlainBlock(Module& parent, std::string name, const PlainConfig& c)
      : Module(parent, std::move(name)),
        attention(*this, "attention", c),
        mlp(*this, "mlp", {.features = c.hidden_size, .hidden = 41}),
        norm_1(*this, "norm_1", {.features = c.hidden_size}),
        norm_2(*this, "norm_2", {.features = c.hidden_size}) {}
  Tensor forward(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions) {
    const autograd::ResidualNorm after =
        norm_2.forward(attention.forward_onto(x, norm_1.forward(x), scope, positions));
    return mlp.forward_onto(after.sum, after.normed).value();
  }
  PlainAttention attention;
  GatedMlp mlp;
  RMSNorm norm_1, norm_2;
};

class PlainLm : public Decoder {
 public:
  explicit PlainLm(const PlainConfig& config = {}) : config_(config) {}
  std::string_view model_type() const override { return "plain"; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_sequence() const override { return config_.positions; }
  int64_t cached_elements_per_token() const override {
    return 2 * config_.layers * config_.kv_heads * config_.head_dim;
  }

 private:
  int64_t num_layers() const override { return config_.layers; }
  Tensor embed(const Tensor& ids, const AttentionScope&) override {
    return embedding_.forward(ids);
  }
  // Layer 0: a table for long distances; 1: no positions; 2: another table and a window.
  PositionTerms terms(int64_t layer, int64_t count, DType dtype) override {
    if (layer % 3 == 1) return {};
    const TensorList& tables = tables_.get(count, dtype == DType::f64 ? dtype : DType::f32);
    const bool is_local = layer % 3 == 2;
    return {.rotary = {.cos = tables[is_local ? 2 : 0], .sin = tables[is_local ? 3 : 1]},
            .window = is_local ? 5 : 0};
  }
  Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
               const PositionTerms& positions) override {
    return layers_[layer].forward(x, scope, positions);
  }
  Tensor final_norm(const Tensor& x) override { return norm_.forward(x); }
  LmHead& head() override { return head_; }

  PlainConfig config_;
  Embedding embedding_{*this,
                       "embedding",
                       {.count = config_.vocab_size,
                        .features = config_.hidden_size,
                        .initializer = autograd::Initializer::normal(0.3),
                        .sliced = true}};
  ModuleList<PlainBlock> layers_{*this, "layers", config_.layers, config_};
  RMSNorm norm_{*this, "norm", {.features = config_.hidden_size}};
  LmHead head_{*this, "head", embedding_, false, autograd::Initializer::normal(0.1)};
  Buffer tables_{[size = config_.head_dim](int64_t count, DType dtype) {
    const auto far = autograd::make_rotary_table(count, size, 1e4, {}, dtype);
    const auto near = autograd::make_rotary_table(count, size, 100.0, {}, dtype);
    return TensorList{far.cos, far.sin, near.cos, near.sin};
  }};
};

}  // namespace zinc::nn::test
