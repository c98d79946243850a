// autograd/ops/where.h: elements of one tensor or of another, by a mask (autograd/ops/compare.h).
//
// mask: u8. a and b have one dtype, any; shapes stretch to each other (kernels/broadcast.h); outer
// strides are free. A number as an operand gets the dtype of the tensor. The result is contiguous.
// Elements that are not selected get a gradient of 0, even where they are NaN.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// mask ? a : b
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& mask, const Tensor& a, double b);
Tensor where(const Tensor& mask, double a, const Tensor& b);
// x, and `value` where the mask holds.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

}  // namespace zinc::autograd
