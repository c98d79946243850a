// autograd/ops/unary.h: element-wise functions of one tensor.
//
// x: any shape, f64 | f32 | bf16 | f16, outer strides free. The result is contiguous, of x's shape
// and dtype. Conventions at kinks and accuracy: kernels/unary.h.
#pragma once

#include "kernels/unary.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

Tensor unary(kernels::UnaryOp op, const Tensor& x);

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);

}  // namespace zinc::autograd
