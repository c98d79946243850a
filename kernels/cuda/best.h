// kernels/cuda/best.h: the largest of values and its index, the first where several are equal.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

// The index of the maximum among values in order, the first where several are equal; a NaN is
// larger than all.
struct Best {
  float value = -INFINITY;
  int64_t place = -1;  // none yet
  __device__ __forceinline__ void take(float other, int64_t at) {
    if (at < 0) return;
    const bool ties = other == value || (other != other && value != value);
    const bool beats = other > value || (other != other && value == value);
    if (place < 0 || beats || (ties && at < place)) {
      value = other;
      place = at;
    }
  }
  // The best of a block of kMapThreads, for each of its threads; shared memory for each warp.
  __device__ __forceinline__ void take_of_block(float* values, int64_t* places) {
    for (int width = kWarp / 2; width > 0; width /= 2) {
      const float other = __shfl_xor_sync(kFullWarp, value, width);
      take(other, __shfl_xor_sync(kFullWarp, place, width));
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0) {
      values[warp] = value;
      places[warp] = place;
    }
    __syncthreads();
    for (int w = 0; w < kMapThreads / kWarp; ++w) take(values[w], places[w]);
    __syncthreads();  // before the next row's are written
  }
};

}  // namespace zinc::kernels::cuda
