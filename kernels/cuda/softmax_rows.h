// kernels/cuda/softmax_rows.h: maximum and exponential sum of a row in one reading, for softmax and
// cross-entropy. Rows belong to groups of threads as in norm_rows.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/norm_rows.h"
#include "kernels/cuda/special_function.h"

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

// e^x of an element of T: of 16 bits the special function unit is exact enough, and a library's
// function would take longer than memory does.
template <class T>
__device__ __forceinline__ float exp_of(float x) {
  return sizeof(T) == 2 ? fast_exp(x) : expf(x);
}

template <class T>
__device__ __forceinline__ void add_exps(ExpSum& to, const float (&values)[kPack<T>]) {
  float largest = to.max;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) largest = values[i] > largest ? values[i] : largest;
  to.raise(largest);
  const float shift = to.shift();
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) to.sum += exp_of<T>(values[i] - shift);
}

// The sum of the whole row, which all threads of its group get. Each thread keeps a sum of its own
// and scales it when its maximum rises.
template <class T>
__device__ __forceinline__ ExpSum exp_sum_of_row(const T* x, int64_t cols, bool aligned) {
  constexpr int kCount = kPack<T>;
  ExpSum mine;
  const int64_t step = int64_t{blockDim.x} * kCount;
  int64_t first = int64_t{threadIdx.x} * kCount;
  float values[kCount];
  if (aligned) {
#pragma unroll 2
    for (; first + kCount <= cols; first += step) {
      load_floats(x, first, cols, WholePacks{}, values);
      add_exps<T>(mine, values);
    }
  }
  for (; first < cols; first += step) {
    load_floats(x, first, cols, false, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i >= cols) values[i] = -INFINITY;
    }
    add_exps<T>(mine, values);
  }
  const float max = row_reduce(mine.max, -INFINITY, Max{});
  mine.raise(max);
  return {max, row_sum(mine.sum)};
}

}  // namespace zinc::kernels::cuda
