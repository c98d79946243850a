// autograd/ops/permute.h: dimensions in another order; a copy. kernels/permute.h.
#pragma once

#include <initializer_list>
#include <span>

#include "tensor/tensor.h"

namespace zinc::autograd {

// y.shape[d] = x.shape[order[d]]. x: any dtype, rank >= 1, outer strides free; order: a permutation
// of 0 .. rank - 1. The result is contiguous.
Tensor permute(const Tensor& x, std::span<const int> order);
inline Tensor permute(const Tensor& x, std::initializer_list<int> order) {
  return permute(x, std::span<const int>(order.begin(), order.size()));
}
// Exchanges two dimensions; negative ones count from the end.
Tensor transpose(const Tensor& x, int a = -2, int b = -1);

}  // namespace zinc::autograd
