// kernels/cuda/attention_shape.h: what all attention kernels know: the problem without views, which
// keys a query sees, and a score.
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

// AttentionProblem for a kernel: no views.
struct AttentionShape {
  int64_t B, Tq, Tk, H, G, D;
  float scale;
  bool causal;
  const int32_t* key_lengths;
  const int32_t* key_begin;
  const int32_t* key_end;
  int64_t key_begin_stride, key_end_stride;
  const float* slopes;
  const float* bias;
  int64_t bias_batch, bias_head, bias_row;  // strides; 0 where it is broadcast
  float dropout;
  float keep_factor;
  RandomKey dropout_key;
  const uint64_t* dropout_counter;  // null: that of the key
  bool aligned;                     // rows of every input can be read by packs

  __device__ Keys keys_of(int64_t b, int64_t i) const {
    Keys keys{0, Tk};
    const auto cap = [&](int64_t end) { keys.end = keys.end < end ? keys.end : end; };
    if (causal) cap(i + Tk - Tq + 1);
    if (key_lengths != nullptr) cap(key_lengths[b]);
    if (key_begin != nullptr) {
      const int64_t begin = key_begin[b * key_begin_stride + i];
      keys.begin = begin > 0 ? begin : 0;
    }
    if (key_end != nullptr) cap(key_end[b * key_end_stride + i]);
    return keys;
  }
  __device__ float score(int64_t b, int64_t h, int64_t i, int64_t j, float product) const {
    float s = scale * product;
    if (slopes != nullptr) {
      const int64_t distance = i + Tk - Tq - j;
      s -= slopes[h] * static_cast<float>(distance < 0 ? -distance : distance);
    }
    if (bias != nullptr) s += bias[b * bias_batch + h * bias_head + i * bias_row + j];
    return s;
  }
  // What dropout multiplies the probability with.
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
