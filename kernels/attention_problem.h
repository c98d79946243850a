// kernels/attention_problem.h: attention after the checks, as a device's code sees it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/attention.h"

namespace zinc::kernels {

// Keys [begin, end) are seen.
struct KeyRange {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
  KeyRange within(const KeyRange& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// A [B, T, heads, D] tensor; strides in elements.
struct HeadsView {
  const void* data = nullptr;
  int64_t batch = 0, row = 0, head = 0;

  HeadsView() = default;
  explicit HeadsView(const ConstView& view)
      : data(view.data()), batch(view.stride(0)), row(view.stride(1)), head(view.stride(2)) {}
  int64_t at(int64_t b, int64_t t, int64_t h) const { return b * batch + t * row + h * head; }
};

struct AttentionProblem {
  int64_t B = 0, Tq = 0, Tk = 0, H = 0, G = 0, D = 0;
  DType dtype = DType::f32;
  Device device;
  double scale = 1.0;
  double softcap = 0.0;
  HeadsView q, k, v;
  AttentionMask mask;
  AttentionDropout dropout;

  int64_t heads_per_group() const { return H / G; }
  DType wide() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  // Position of the first query less the position of the first key.
  int64_t ahead() const { return mask.origin ? mask.origin->query - mask.origin->key : Tk - Tq; }
  int64_t first_key() const { return mask.origin ? mask.origin->key : 0; }
  int64_t position(int64_t i) const { return i + ahead(); }
  bool has_bias_by_distance() const { return mask.bias && mask.bias.rank() == 2; }

  KeyRange keys_of(int64_t b, int64_t i) const {
    KeyRange range{0, Tk};
    if (mask.causal) range.end = std::min(range.end, position(i) + 1);
    if (mask.window > 0) {
      range.begin = std::max<int64_t>(0, position(i) - mask.window + 1);
      range.end = std::min(range.end, position(i) + mask.window);
    }
    if (mask.key_lengths) {
      range.end =
          std::min<int64_t>(range.end, mask.key_lengths.data_as<int32_t>()[b] - first_key());
    }
    if (mask.key_begin) {
      const int64_t at = b * mask.key_begin.stride(0) + i;
      range.begin =
          std::max<int64_t>(range.begin, mask.key_begin.data_as<int32_t>()[at] - first_key());
    }
    if (mask.key_end) {
      const int64_t at = b * mask.key_end.stride(0) + i;
      range.end = std::min<int64_t>(range.end, mask.key_end.data_as<int32_t>()[at] - first_key());
    }
    return range;
  }
  // Every key that one of the queries [i, i + count) sees lies in this range.
  KeyRange keys_of_rows(int64_t b, int64_t i, int64_t count) const {
    KeyRange all{Tk, 0};
    for (int64_t r = i; r < i + count; ++r) {
      const KeyRange one = keys_of(b, r);
      if (one.empty()) continue;
      all = {std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
    return all;
  }

  // --- the layout of blocks
  int64_t layout_head(int64_t h) const {
    return mask.layout.blocks->head_of(mask.layout.first_head + h);
  }
  // The layout's row for query i.
  int64_t layout_row(int64_t i) const {
    return (position(i) + first_key()) / mask.layout.blocks->block();
  }
  // One past the last query whose layout is that of query i.
  int64_t end_of_layout_row(int64_t i) const {
    if (!mask.layout.blocks) return Tq;
    const int64_t end = (layout_row(i) + 1) * mask.layout.blocks->block();
    return std::min(end - first_key() - ahead(), Tq);
  }
  // visit(KeyRange) for every run of keys that the layout shows to query i of head h, in order: all
  // keys without a layout. The other conditions hide some of them.
  template <class Visit>
  void for_each_run(int64_t h, int64_t i, const Visit& visit) const {
    if (!mask.layout.blocks) return visit(KeyRange{0, Tk});
    const BlockLayout& layout = *mask.layout.blocks;
    layout.for_each_run(layout_head(h), layout_row(i), [&](int64_t begin, int64_t end) {
      const KeyRange keys{std::max<int64_t>(begin * layout.block() - first_key(), 0),
                          std::min(end * layout.block() - first_key(), Tk)};
      if (!keys.empty()) visit(keys);
    });
  }

  // How the bias, or its gradient, is read as a [B, H, Tq, Tk] matrix: strides in elements, 0 where
  // it is broadcast, and element (0, 0, 0, 0). See Note [Bias by distance].
  struct BiasRows {
    int64_t batch = 0, head = 0, row = 0, first = 0;
    int64_t at(int64_t b, int64_t h, int64_t i) const {
      return first + b * batch + h * head + i * row;
    }
  };
  BiasRows bias_rows(const ConstView& bias) const {
    const auto stride = [&](int d) { return bias.dim(d) == 1 ? 0 : bias.stride(d); };
    if (bias.rank() == 2) return {.head = stride(0), .row = -1, .first = Tq - 1};
    return {.batch = stride(0), .head = stride(1), .row = bias.stride(2)};
  }
  uint64_t dropout_element(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return static_cast<uint64_t>(((b * H + h) * Tq + i) * Tk + j);
  }
  int64_t lse_at(int64_t b, int64_t h, int64_t i) const { return (b * H + h) * Tq + i; }
};

struct AttentionGradients {
  HeadsView out, dout;
  const void* lse = nullptr;
  HeadsView dq, dk, dv;  // written through
  View dbias;
};

namespace cpu {

// Each takes its workspace from the current context and queues its work on the stream.
void run_attention_forward(const AttentionProblem& problem, const HeadsView& out, void* lse,
                           StreamRef stream);
void run_attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients,
                            StreamRef stream);

// The f64 path: one row of scores at a time, straight from the definition. All threads.
void attention_forward_f64(const AttentionProblem& problem, const HeadsView& out, double* lse);
void attention_backward_f64(const AttentionProblem& problem, const AttentionGradients& gradients);

}  // namespace cpu
}  // namespace zinc::kernels
