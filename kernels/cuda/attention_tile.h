// kernels/cuda/attention_tile.h: shared parts of the attention kernels without tensor cores: tiles
// of rows in shared memory, in f32.
//
// A block of 128 threads holds a tile of 32 rows; thread t owns row t / 4 of it and of that row
// every fourth element from t % 4 on, so that a row lies in one warp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention_shape.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

inline constexpr int kTileRows = 32;
inline constexpr int kRowThreads = 4;
inline constexpr int kAttentionThreads = kTileRows * kRowThreads;
inline constexpr int kScoreStride = kTileRows + 1;

// Copies rows [first, first + 32) of (b, h) into shared memory, `kStride` apart; rows outside [0,
// rows) become zeros. All threads of the block call it; there is no barrier in it.
template <class T, int kStride>
__device__ __forceinline__ void load_tile(float* tile, const HeadRows<const T>& from, int64_t b,
                                          int64_t h, int64_t first, int64_t rows, int64_t D,
                                          bool aligned) {
  constexpr int kPacks = (kStride - 1) / kPack<T>;
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kPacks; e += kAttentionThreads) {
    const int r = e / kPacks;
    const int p = e % kPacks;
    Pack<T> pack{};
    if (first + r >= 0 && first + r < rows && p * kPack<T> < D) {
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

// The rows of the tile that begins at `first` that a query sees, counted from `first`.
__device__ __forceinline__ Keys keys_in_tile(const Keys& keys, int64_t first) {
  return {keys.begin > first ? keys.begin - first : 0,
          keys.end - first < kTileRows ? keys.end - first : int64_t{kTileRows}};
}

// sum += weights[c] * tile row c over the rows that a thread's row sees; the thread has every
// fourth element of them.
template <int kStride, int kEach>
__device__ __forceinline__ void add_tile_rows(float (&sum)[kEach], const float* weights,
                                              const float* tile, const Keys& seen) {
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  for (int64_t c = seen.begin; c < seen.end; ++c) {
    const float weight = weights[c];
#pragma unroll
    for (int n = 0; n < kEach; ++n) sum[n] += weight * tile[c * kStride + part + n * kRowThreads];
  }
}

// Rounded to T and back.
template <class T>
__device__ __forceinline__ float rounded(float value) {
  return static_cast<float>(T(value));
}

inline unsigned tiles_of(int64_t rows) {
  return static_cast<unsigned>((rows + kTileRows - 1) / kTileRows);
}

// Calls body.operator()<T, kStride>() for the dtype and the smallest of the head sizes 32, 64, 128
// and 256 that is not less than D; a tile's rows lie kStride = head size + 1 floats apart.
template <class Body>
void dispatch_tile_attention(const AttentionProblem& p, Body&& body) {
  dispatch_device_float("attention", p.dtype, [&]<class T>() {
    if (p.D <= 32) return body.template operator()<T, 33>();
    if (p.D <= 64) return body.template operator()<T, 65>();
    if (p.D <= 128) return body.template operator()<T, 129>();
    body.template operator()<T, 257>();
  });
}

}  // namespace zinc::kernels::cuda
