// autograd/ops/concat.h: tensors side by side along one dimension; kernels/concat.h.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::autograd {

// Any dtype, outer strides free; all other extents and the dtype agree. At least one part. Negative
// dims count from the end. The result is contiguous; backward gives views of its gradient.
Tensor concat(std::span<const Tensor> parts, int dim);
inline Tensor concat(const std::vector<Tensor>& parts, int dim) {
  return concat(std::span<const Tensor>(parts), dim);
}

// Any list, and a dimension of any whole type: beside zinc::concat() of core/error.h, which joins
// texts, these take every call with a list of tensors in a program that has zinc.h.
template <std::convertible_to<std::span<const Tensor>> Parts, std::integral Dim>
Tensor concat(const Parts& parts, Dim dim) {
  return concat(std::span<const Tensor>(parts), static_cast<int>(dim));
}

}  // namespace zinc::autograd
