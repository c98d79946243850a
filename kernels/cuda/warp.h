// kernels/cuda/warp.h: reductions over the threads of a warp and of a block, in a fixed order: the
// bits depend on the values and the size of the block alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kFullWarp = 0xffffffffu;

struct Add {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Min {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

// Folds over each kLanes neighbouring lanes; all 32 lanes of the warp take part and get the result.
// A butterfly: commutative folds give all lanes the same bits.
template <int kLanes = kWarp, class T, class Fold>
__device__ __forceinline__ T warp_reduce(T value, Fold fold) {
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    value = fold(value, __shfl_xor_sync(kFullWarp, value, width));
  }
  return value;
}
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  return warp_reduce(value, Add{});
}

// The same over all threads of a block of (32 k) x 1 x 1 threads, in the order of the warps. Has
// two barriers: all threads of the block call it.
template <class T, class Fold>
__device__ __forceinline__ T block_reduce(T value, T neutral, Fold fold) {
  value = warp_reduce(value, fold);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  ZINC_SHARED(T, partials, [kWarp]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == 0) partials[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < warps ? partials[lane] : neutral, fold);
  __syncthreads();  // before the next reduction writes
  return value;
}
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  return block_reduce(value, T(0), Add{});
}

}  // namespace zinc::kernels::cuda
