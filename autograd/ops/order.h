// autograd/ops/order.h: elements in order, and the indices of the largest; kernels/sort.h,
// kernels/argmax.h.
//
// x: f64 | f32 | bf16 | f16, outer strides free. `places` are indices along the dimension, i64,
// without gradient. The gradient of `values` goes to the elements that were selected. Equal
// elements keep their order; a NaN is larger than all.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

struct Ordered {
  Tensor values;   // [..., k] dtype of x
  Tensor indices;  // [..., k] i64: along the last dimension of x
};
// The last dimension in rising or falling order.
Ordered sort(const Tensor& x, bool descending = false);
// The k largest (or smallest) of the last dimension, the best first. 0 <= k <= x.dim(-1)
Ordered topk(const Tensor& x, int64_t k, bool largest = true);

// The index of the largest or smallest element along one dimension, the first where several are
// equal. The dimension disappears, or keeps an extent of 1 (keepdim). At least one element.
Tensor argmax(const Tensor& x, int dim = -1, bool keepdim = false);
Tensor argmin(const Tensor& x, int dim = -1, bool keepdim = false);

}  // namespace zinc::autograd
