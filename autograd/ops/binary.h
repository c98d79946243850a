// autograd/ops/binary.h: element-wise functions of two tensors.
//
// b has the shape of a, or is broadcast over a's leading dimensions: b's shape is that of a's last
// dimensions, or b has one element. For add, mul, maximum and minimum either side may be the
// smaller. Floats of one dtype; where shapes agree outer strides are free, a broadcast side is
// contiguous. The result is contiguous, of the larger shape.
#pragma once

#include "kernels/binary.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

Tensor binary(kernels::BinaryOp op, const Tensor& a, const Tensor& b);

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// Where a == b the gradient goes to the larger side, or to a where shapes agree.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

}  // namespace zinc::autograd
