// autograd/ops/compare.h: masks. A mask is a u8 tensor, 1 where the comparison holds, else 0; it
// has no gradient.
//
// a, b: any dtype, the same; shapes stretch to each other (kernels/broadcast.h); outer strides are
// free. A value: whole for integers, rounded to f32 for f32, bf16 and f16. A NaN is unequal to all.
#pragma once

#include "kernels/compare.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::CompareOp;

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b);
Tensor compare(CompareOp op, const Tensor& a, double b);

// Masks combined: 1 where both hold; where either holds; where the mask does not hold.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& mask);

}  // namespace zinc::autograd
