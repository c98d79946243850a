// kernels/cuda/softmax_rows.h: maximum and exponential sum of a row in one reading, for softmax and
// cross-entropy. Rows belong to groups of threads as in norm_rows.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/norm_rows.h"

namespace zinc::kernels::cuda {

// sum = sum_c exp(x[c] - shift()). A NaN anywhere makes sum NaN.
struct ExpSum {
  float max = -INFINITY;
  float sum = 0.0f;

  // 0 where all is -infinity, so that exponentials are 0 and not NaN.
  __device__ __forceinline__ float shift() const { return max == -INFINITY ? 0.0f : max; }
  __device__ __forceinline__ void raise(float larger) {
    if (!(larger > max)) return;
    if (sum != 0.0f) sum *= expf(max - larger);
    max = larger;
  }
};

// Of the whole row, to all threads of its group. Each thread keeps a sum of its own and scales it
// when its maximum rises.
template <class T>
__device__ __forceinline__ ExpSum exp_sum_of_row(const T* x, int64_t cols, bool aligned) {
  constexpr int kCount = kPack<T>;
  ExpSum mine;
  const int64_t step = int64_t{blockDim.x} * kCount;
  for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
    float values[kCount];
    load_floats(x, first, cols, aligned, values);
    float largest = mine.max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i >= cols) values[i] = -INFINITY;
      largest = values[i] > largest ? values[i] : largest;
    }
    mine.raise(largest);
    const float shift = mine.shift();
#pragma unroll
    for (int i = 0; i < kCount; ++i) mine.sum += expf(values[i] - shift);
  }
  const float max = row_reduce(mine.max, -INFINITY, Max{});
  mine.raise(max);
  return {max, row_sum(mine.sum)};
}

}  // namespace zinc::kernels::cuda
