#include "autograd/ops/attention.h"

#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/recorded_draws.h"
#include "autograd/view_shapes.h"
#include "core/context.h"
#include "kernels/attention.h"
#include "kernels/attention_sinks.h"

namespace zinc::autograd {
namespace {

// Numbers and size of the heads in a packed row or in three tensors.
struct Heads {
  int64_t queries = 0;  // H
  int64_t keys = 0;     // G
  int64_t size = 0;     // D
};

kernels::AttentionMask mask_of(const AttentionOptions& options) {
  return {.causal = options.causal,
          .window = options.window,
          .key_lengths = view_or_absent(options.key_lengths),
          .key_begin = view_or_absent(options.key_begin),
          .key_end = view_or_absent(options.key_end),
          .alibi_slopes = view_or_absent(options.alibi_slopes),
          .bias = view_or_absent(options.bias),
          .layout = {.blocks = options.layout,
                     .words = view_or_absent(options.layout_words),
                     .first_head = options.layout_head}};
}

// The tensors of the options that a node saves, in their order.
using MaskTensor = Tensor AttentionOptions::*;
constexpr std::array<MaskTensor, 6> kMaskTensors{
    &AttentionOptions::key_lengths,  &AttentionOptions::key_begin, &AttentionOptions::key_end,
    &AttentionOptions::alibi_slopes, &AttentionOptions::bias,      &AttentionOptions::sinks};

// Operands: q, k, v (or qkv for all three), then bias, sinks. Saved: q, k, v (or qkv and two
// undefined ones), out, lse, key_lengths, key_begin, key_end, alibi_slopes, bias, sinks.
class AttentionNode final : public Node {
 public:
  AttentionNode(const AttentionOptions& options, const Heads& heads, bool packed, const Draw& drawn)
      : heads_(heads),
        packed_(packed),
        options_(options),
        dropout_{.probability = static_cast<float>(options.dropout),
                 .key = drawn.key,
                 .counter = drawn.counter} {
    for (size_t i = 0; i < kMaskTensors.size(); ++i) {
      has_[i] = (options.*kMaskTensors[i]).defined();
      options_.*kMaskTensors[i] = {};  // the node saves them
    }
  }
  std::string_view name() const override { return "attention"; }

  void backward(BackwardPass& pass) override {
    const Tensor dout = pass.take_gradient(0);
    const Tensor q = pass.take_saved(0);
    const Tensor k = packed_ ? q : pass.take_saved(1);
    const Tensor v = packed_ ? q : pass.take_saved(2);
    const Tensor out = pass.take_saved(3);
    const Tensor lse = pass.take_saved(4);
    AttentionOptions options = options_;
    for (size_t i = 0; i < kMaskTensors.size(); ++i) {
      if (has_[i]) options.*kMaskTensors[i] = pass.take_saved(5 + static_cast<int>(i));
    }
    const int bias_input = packed_ ? 1 : 3, sinks_input = bias_input + 1;
    if (has_[5] && pass.needs(sinks_input)) {
      Tensor dsinks = pass.gradient_memory(sinks_input);
      kernels::attention_sinks_backward({.sinks = options.sinks.view(),
                                         .out = query_heads(ConstView(out.view())),
                                         .lse = lse.view(),
                                         .dout = query_heads(ConstView(dout.view())),
                                         .dsinks = dsinks.view()},
                                        compute_stream());
      pass.give(sinks_input, std::move(dsinks));
    }
    Tensor dbias;
    if (has_[4] && pass.needs(bias_input)) dbias = pass.gradient_memory(bias_input);
    Tensor dq = gradient_of(pass, 0, q);
    Tensor dk = packed_ ? dq : gradient_of(pass, 1, k);
    Tensor dv = packed_ ? dq : gradient_of(pass, 2, v);
    kernels::attention_backward({.q = query_heads(ConstView(q.view())),
                                 .k = key_heads(ConstView(k.view())),
                                 .v = value_heads(ConstView(v.view())),
                                 .out = query_heads(ConstView(out.view())),
                                 .lse = lse.view(),
                                 .dout = query_heads(ConstView(dout.view())),
                                 .dq = query_heads(dq.view()),
                                 .dk = key_heads(dk.view()),
                                 .dv = value_heads(dv.view()),
                                 .dbias = dbias.defined() ? dbias.view() : View(),
                                 .scale = options.scale,
                                 .softcap = options.softcap,
                                 .mask = mask_of(options),
                                 .dropout = dropout_},
                                compute_stream());
    if (dbias.defined()) pass.give(bias_input, std::move(dbias));
    if (!packed_ && pass.needs(2)) pass.give(2, std::move(dv));
    if (!packed_ && pass.needs(1)) pass.give(1, std::move(dk));
    dk = dv = {};
    if (pass.needs(0)) pass.give(0, std::move(dq));
  }

  template <class AnyView>
  AnyView query_heads(const AnyView& view) const {
    return heads_of("attention", view, 0, heads_.queries, heads_.size);
  }
  template <class AnyView>
  AnyView key_heads(const AnyView& view) const {
    return heads_of("attention", view, packed_ ? heads_.queries : 0, heads_.keys, heads_.size);
  }
  template <class AnyView>
  AnyView value_heads(const AnyView& view) const {
    return heads_of("attention", view, packed_ ? heads_.queries + heads_.keys : 0, heads_.keys,
                    heads_.size);
  }
  const kernels::AttentionDropout& dropout() const { return dropout_; }

 private:
  // The kernel writes all three; an unwanted gradient gets memory that is freed at once.
  static Tensor gradient_of(BackwardPass& pass, int input, const Tensor& like) {
    if (pass.needs(input)) return pass.gradient_memory(input, true);
    return Tensor::empty(like.shape(), like.dtype());
  }

  Heads heads_;
  bool packed_;
  AttentionOptions options_;  // without the tensors that are saved
  kernels::AttentionDropout dropout_;
  std::array<bool, 6> has_{};
};

Heads count_heads(const AttentionOptions& options, int64_t query_cols, bool packed) {
  Heads heads{.queries = options.num_heads,
              .keys = options.num_kv_heads > 0 ? options.num_kv_heads : options.num_heads};
  require(heads.queries > 0 && heads.queries % heads.keys == 0, "attention: ", heads.queries,
          " query heads cannot share ", heads.keys, " key heads evenly");
  const int64_t in_row = packed ? heads.queries + 2 * heads.keys : heads.queries;
  require(query_cols % in_row == 0, "attention: rows of ", query_cols, " do not hold ", in_row,
          " heads");
  heads.size = query_cols / in_row;
  return heads;
}

// q, k, v: three tensors, or the packed one in q and two undefined ones.
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, bool packed,
                    const AttentionOptions& options) {
  const Heads heads = count_heads(options, q.dim(-1), packed);
  require(options.dropout >= 0 && options.dropout < 1, "attention: dropout must be in [0, 1), not ",
          options.dropout);
  Draw drawn;
  if (options.dropout > 0) drawn = draw(options.site);
  bool records = needs_gradient(q, options.bias, options.sinks);
  if (!packed) records = records || needs_gradient(k, v);
  // The node also knows where the heads are; without gradients it goes at the end.
  auto node = make_node<AttentionNode>(options, heads, packed, drawn);
  Tensor out = Tensor::empty(Shape{q.dim(0), q.dim(1), heads.queries * heads.size}, q.dtype());
  Tensor lse;
  if (records || options.sinks.defined()) {
    lse = Tensor::empty(Shape{q.dim(0), heads.queries, q.dim(1)},
                        q.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  const ConstView keys = packed ? q.view() : k.view();
  const ConstView values = packed ? q.view() : v.view();
  kernels::attention_forward({.q = node->query_heads(ConstView(q.view())),
                              .k = node->key_heads(keys),
                              .v = node->value_heads(values),
                              .out = node->query_heads(out.view()),
                              .lse = lse.defined() ? lse.view() : View(),
                              .scale = options.scale,
                              .softcap = options.softcap,
                              .mask = mask_of(options),
                              .dropout = node->dropout()},
                             compute_stream());
  if (options.sinks.defined()) {
    require(options.sinks.shape() == Shape{heads.queries}, "attention: sinks must be [",
            heads.queries, "], one for each head, not ", options.sinks.shape());
    kernels::attention_sinks(
        {.sinks = options.sinks.view(), .out = node->query_heads(out.view()), .lse = lse.view()},
        compute_stream());
  }
  if (!records) return out;
  node->add_input(q);
  if (!packed) {
    node->add_input(k);
    node->add_input(v);
  }
  node->add_input(options.bias);
  node->add_input(options.sinks);
  for (const Tensor& saved : {q, k, v, out, lse}) node->save(saved);
  for (const MaskTensor tensor : kMaskTensors) node->save(options.*tensor);
  node->set_output(out);
  return out;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  require(q.rank() == 3 && (k.rank() == 3 || k.rank() == 4),
          "attention: [B, T, heads * head_size] is needed, not ", q.shape(), ", ", k.shape(), ", ",
          v.shape());
  require(k.shape() == v.shape() && k.dim(0) == q.dim(0),
          "attention: q, k and v do not fit together: ", q.shape(), ", ", k.shape(), ", ",
          v.shape());
  const Heads heads = count_heads(options, q.dim(-1), false);
  require(k.rank() == 4 || k.dim(-1) == heads.keys * heads.size, "attention: k of shape ",
          k.shape(), " does not hold ", heads.keys, " heads of size ", heads.size);
  return attention_of(q, k, v, false, options);
}

Tensor attention(const Tensor& qkv, const AttentionOptions& options) {
  require(qkv.rank() == 3, "attention: qkv must be [B, T, (H + 2 G) * D], not ", qkv.shape());
  return attention_of(qkv, {}, {}, true, options);
}

Tensor make_layout_words(const BlockLayout& layout) {
  if (Context::current().device().is_cpu()) return {};
  return Tensor::from(layout.words(), Shape{std::ssize(layout.words())});
}

Tensor make_alibi_slopes(int64_t num_heads) {
  require(num_heads > 0, "make_alibi_slopes: the number of heads must be positive, not ",
          num_heads);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  std::vector<float> slopes;
  for (int64_t h = 0; h < num_heads; ++h) {
    const double place =
        h < power ? static_cast<double>(h + 1) : static_cast<double>(2 * (h - power) + 1) / 2.0;
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * place / static_cast<double>(power))));
  }
  return Tensor::from(slopes, Shape{num_heads});
}

}  // namespace zinc::autograd
