// kernels/cuda/attention_tile.h: what the attention kernels share: tiles of rows in shared memory,
// which keys a query sees, and a score.
//
// A block of 128 threads holds a tile of 32 rows; thread t owns row t / 4 of it and of that row
// every fourth element from t % 4 on, so that a row lies in one warp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/philox.h"
#include "kernels/attention_problem.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

inline constexpr int kTileRows = 32;
inline constexpr int kRowThreads = 4;
inline constexpr int kAttentionThreads = kTileRows * kRowThreads;
inline constexpr int kScoreStride = kTileRows + 1;
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
  bool aligned;  // rows of every tensor can be read by packs

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
    return dropout_key.uniform(element) < dropout ? 0.0f : keep_factor;
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

// Rows [first, first + 32) of those of (b, h) into shared memory, `kStride` apart, zeros beyond
// `rows`. All threads of the block; no barrier.
template <class T, int kStride>
__device__ __forceinline__ void load_tile(float* tile, const HeadRows<const T>& from, int64_t b,
                                          int64_t h, int64_t first, int64_t rows, int64_t D,
                                          bool aligned) {
  constexpr int kPacks = (kStride - 1) / kPack<T>;
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kPacks; e += kAttentionThreads) {
    const int r = e / kPacks;
    const int p = e % kPacks;
    Pack<T> pack{};
    if (first + r < rows && p * kPack<T> < D) {
      pack = load_pack(from.at(b, first + r, h), p, D, aligned);
    }
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      tile[r * kStride + p * kPack<T> + i] = static_cast<float>(pack.at[i]);
    }
  }
}

template <int kStride>
__device__ __forceinline__ float dot_rows(const float* x, const float* y) {
  float sum = 0.0f;
#pragma unroll 8
  for (int d = 0; d < kStride - 1; ++d) sum += x[d] * y[d];
  return sum;
}

// Sum and maximum over the threads of a row; all lanes of the warp.
template <class Fold>
__device__ __forceinline__ float row_reduce(float value, Fold fold) {
#pragma unroll
  for (int width = kRowThreads / 2; width > 0; width /= 2) {
    value = fold(value, __shfl_xor_sync(kFullWarp, value, width));
  }
  return value;
}

// Rounded to T and back.
template <class T>
__device__ __forceinline__ float rounded(float value) {
  return static_cast<float>(T(value));
}

inline bool can_read_packs(const HeadsView& view, DType dtype) {
  const auto fits = [&](int64_t stride) { return stride * size_of(dtype) % 16 == 0; };
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && fits(view.batch) && fits(view.row) &&
         fits(view.head);
}

AttentionShape attention_shape(const char* op, const AttentionProblem& p);

inline unsigned tiles_of(int64_t rows) {
  return static_cast<unsigned>((rows + kTileRows - 1) / kTileRows);
}

// Calls body.operator()<T, kStride>() for the dtype and the smallest of the head sizes 32, 64, 128
// and 256 that is not less than D; a tile's rows lie kStride = head size + 1 floats apart.
template <class Body>
void dispatch_attention(const char* op, const AttentionProblem& p, Body&& body) {
  dispatch_device_float(op, p.dtype, [&]<class T>() {
    if (p.D <= 32) return body.template operator()<T, 33>();
    if (p.D <= 64) return body.template operator()<T, 65>();
    if (p.D <= 128) return body.template operator()<T, 129>();
    body.template operator()<T, 257>();
  });
}

}  // namespace zinc::kernels::cuda
