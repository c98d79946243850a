// kernels/cuda/attention_shape.h: what all attention kernels know: the problem without views, which
// keys a query sees, and what becomes of a product before the softmax: the one place of a new mask
// or term.
#pragma once

#include <cstdint>

#include "core/philox.h"
#include "kernels/attention_problem.h"
#include "kernels/cuda/launch.h"

namespace zinc::kernels::cuda {

inline constexpr int64_t kMaxHeadSize = 256;

struct Keys {
  int64_t begin, end;
};

__device__ __forceinline__ int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ __forceinline__ int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

struct Score {
  float value;
  float slope;  // growth of the score with the scaled product
};

// AttentionProblem for a kernel: no views.
struct AttentionShape {
  int64_t B, Tq, Tk, H, G, D;
  float scale;
  float softcap, inverse_softcap;  // 0: none
  bool causal;
  int64_t window;
  int64_t ahead, first_key;  // AttentionProblem's
  const int32_t* key_lengths;
  const int32_t* key_begin;
  const int32_t* key_end;
  int64_t key_begin_stride, key_end_stride;
  const float* slopes;
  const float* bias;
  int64_t bias_batch, bias_head, bias_row;  // strides; see AttentionProblem::BiasRows
  const int32_t* layout;                    // words of head 0's blocks; null: all blocks are seen
  int64_t layout_head, layout_row;          // words from head to head and from row to row
  int layout_shift;                         // log2 of a block's positions
  float dropout;
  float keep_factor;
  RandomKey dropout_key;
  const uint64_t* dropout_counter;  // null: that of the key
  bool aligned;                     // rows of every input can be read by packs

  // A range that holds every key that a query of [first, last] sees by position and length.
  __device__ Keys keys_by_position(int64_t b, int64_t first, int64_t last) const {
    Keys keys{0, Tk};
    if (window > 0) {
      keys = {max_of(0, first + ahead - window + 1), min_of(Tk, last + ahead + window)};
    }
    if (causal) keys.end = min_of(keys.end, last + ahead + 1);
    if (key_lengths != nullptr) keys.end = min_of(keys.end, key_lengths[b] - first_key);
    return keys;
  }
  // A range that holds every query that sees a key of [first, last] by position and length.
  __device__ Keys queries_by_position(int64_t b, int64_t first, int64_t last) const {
    Keys queries{0, Tq};
    if (window > 0) {
      queries = {max_of(0, first - ahead - window + 1), min_of(Tq, last - ahead + window)};
    }
    if (causal) queries.begin = max_of(queries.begin, first - ahead);
    if (key_lengths != nullptr && key_lengths[b] - first_key <= first) queries.end = 0;
    return queries;
  }
  __device__ bool has_keys_of_values() const { return key_begin != nullptr || key_end != nullptr; }
  __device__ Keys keys_of(int64_t b, int64_t i) const {
    Keys keys = keys_by_position(b, i, i);
    if (key_begin != nullptr) {
      keys.begin = max_of(keys.begin, key_begin[b * key_begin_stride + i] - first_key);
    }
    if (key_end != nullptr)
      keys.end = min_of(keys.end, key_end[b * key_end_stride + i] - first_key);
    return keys;
  }

  // Whether the layout shows query i of head h key j.
  __device__ bool layout_sees(int64_t h, int64_t i, int64_t j) const {
    if (layout == nullptr) return true;
    const int64_t row = (i + ahead + first_key) >> layout_shift;
    const int64_t column = (j + first_key) >> layout_shift;
    const auto word =
        static_cast<uint32_t>(layout[h * layout_head + row * layout_row + column / 32]);
    return (word >> (column % 32) & 1u) != 0;
  }
  // Whether the layout shows any of these queries one of these keys, or all of them all keys.
  // Queries and keys beyond the last do not count.
  __device__ bool layout_shows_any(int64_t h, const Keys& queries, const Keys& keys) const {
    return layout == nullptr || find_in_layout(h, queries, keys, 1);
  }
  __device__ bool layout_shows_all(int64_t h, const Keys& queries, const Keys& keys) const {
    return layout == nullptr || !find_in_layout(h, queries, keys, 0);
  }
  // Whether there is a block of queries and keys whose bit is `wanted`.
  __device__ bool find_in_layout(int64_t h, const Keys& queries, const Keys& keys,
                                 int wanted) const {
    const int64_t last_query = min_of(queries.end, Tq) - 1, last_key = min_of(keys.end, Tk) - 1;
    if (queries.begin > last_query || keys.begin > last_key) return false;
    const int64_t place = ahead + first_key;
    const int64_t first = (keys.begin + first_key) >> layout_shift;
    const int64_t last = (last_key + first_key) >> layout_shift;
    const int64_t last_row = (last_query + place) >> layout_shift;
    for (int64_t row = (queries.begin + place) >> layout_shift; row <= last_row; ++row) {
      const int32_t* words = layout + h * layout_head + row * layout_row;
      for (int64_t w = first / 32; w <= last / 32; ++w) {
        uint32_t mask = ~0u;
        if (w == first / 32) mask &= ~0u << (first % 32);
        if (w == last / 32) mask &= ~0u >> (31 - last % 32);
        const auto bits = static_cast<uint32_t>(words[w]);
        if (((wanted != 0 ? bits : ~bits) & mask) != 0) return true;
      }
    }
    return false;
  }

  // The score of part = tanh(scale * product / softcap).
  __device__ Score capped(float part) const { return {softcap * part, fmaf(-part, part, 1.0f)}; }
  __device__ float alibi(int64_t h, int64_t i, int64_t j) const {
    const int64_t distance = i + ahead - j;
    return slopes[h] * static_cast<float>(distance < 0 ? -distance : distance);
  }
  __device__ float bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return bias[b * bias_batch + h * bias_head + i * bias_row + j];
  }
  __device__ Score score(int64_t b, int64_t h, int64_t i, int64_t j, float product) const {
    Score s{scale * product, 1.0f};
    if (softcap != 0.0f) s = capped(tanhf(s.value * inverse_softcap));
    if (slopes != nullptr) s.value -= alibi(h, i, j);
    if (bias != nullptr) s.value += bias_at(b, h, i, j);
    return s;
  }
  // The factor that dropout multiplies the probability with.
  __device__ float kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (dropout == 0.0f) return 1.0f;
    const auto element = static_cast<uint64_t>(((b * H + h) * Tq + i) * Tk + j);
    const RandomKey key{dropout_key.key,
                        dropout_counter != nullptr ? *dropout_counter : dropout_key.counter_high};
    return key.uniform(element) < dropout ? 0.0f : keep_factor;
  }
};

// Rows of one head of a [B, T, heads, D] tensor.
template <class T>
struct HeadRows {
  T* data;
  int64_t batch, row, head;

  __device__ T* at(int64_t b, int64_t t, int64_t h) const {
    return data + b * batch + t * row + h * head;
  }
};

template <class T>
HeadRows<const T> rows_of(const HeadsView& view) {
  return {static_cast<const T*>(view.data), view.batch, view.row, view.head};
}
template <class T>
HeadRows<T> written_rows_of(const HeadsView& view) {
  return {static_cast<T*>(const_cast<void*>(view.data)), view.batch, view.row, view.head};
}

inline bool can_read_packs(const HeadsView& view, DType dtype) {
  const auto fits = [&](int64_t stride) { return stride * size_of(dtype) % 16 == 0; };
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && fits(view.batch) && fits(view.row) &&
         fits(view.head);
}

AttentionShape attention_shape(const char* op, const AttentionProblem& p);

}  // namespace zinc::kernels::cuda
