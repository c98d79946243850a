// autograd/ops/binary.h: element-wise functions of two tensors.
//
// a, b: floats of one dtype, outer strides free. Their shapes stretch to the result's by the rules
// of NumPy (kernels/broadcast.h): [B, T, C] with [C], [B, T, 1] or a scalar. The result is
// contiguous. The gradient of a repeated operand is summed over the repetitions in f32 (f64): in
// one pass where b is repeated as a row, else from one f32 for each element of the result.
#pragma once

#include "kernels/binary.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

Tensor binary(kernels::BinaryOp op, const Tensor& a, const Tensor& b);

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// One operand is a number, which is rounded to f32 unless the tensor is f64.
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);
// Where a == b the gradient goes to the operand with the larger shape, or to a where shapes agree.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

}  // namespace zinc::autograd
