// autograd/ops/cast.h: another dtype, or contiguous memory; kernels/copy.h.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// x: any shape, outer strides free. The result is a contiguous copy, or x itself where the dtype is
// the same. The gradient is rounded to x's dtype. Only floats have gradients.
Tensor cast(const Tensor& x, DType dtype);
// A contiguous copy, or x itself where it is contiguous.
Tensor contiguous(const Tensor& x);

}  // namespace zinc::autograd
