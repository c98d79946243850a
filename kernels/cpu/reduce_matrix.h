// kernels/cpu/reduce_matrix.h: what the f64 and the vector path of reduce share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/checks.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/reduce.h"

namespace zinc::kernels::cpu {

// The argument as the sums see it: `all` is one row.
struct ReduceMatrix {
  int64_t rows;
  int64_t cols;
  int64_t stride;
};

inline ReduceMatrix reduce_matrix(const ConstView& x, ReduceOver over) {
  if (over == ReduceOver::all) return {1, x.numel(), x.numel()};
  return {x.rows(), x.cols(), row_stride("reduce", "x", x)};
}

// Rows of a thread's turn.
inline int64_t reduce_row_grain(int64_t cols) {
  return std::max<int64_t>(1, kElementGrain / (cols + 1));
}

// NaN beats all; of two equal values the first stays.
template <class A>
A larger(A a, A b) {
  return a >= b || a != a ? a : b;
}

template <class A, class Target>
void store_reduced(Target& target, A value, bool accumulate) {
  target = Target(accumulate ? A(target) + value : value);
}

}  // namespace zinc::kernels::cpu
