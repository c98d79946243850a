// autograd/ops/split.h: parts of a tensor along one dimension, without a copy.
//
// The parts share x's memory and have its strides. Backward gathers the parts' gradients in one
// buffer of x's shape; a consumer that can (attention, permute) writes into it directly, so that
// splitting a QKV buffer costs no copy in either direction. Parts that get no gradient count as 0.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::autograd {

// The sizes add up to x.dim(dim). x: any dtype, outer strides free. Negative dims count from the
// end.
std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int dim);
inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<int64_t> sizes, int dim) {
  return split(x, std::span<const int64_t>(sizes.begin(), sizes.size()), dim);
}
// Elements [begin, begin + length) of one dimension. Several parts of one tensor: use split().
Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t length);

}  // namespace zinc::autograd
