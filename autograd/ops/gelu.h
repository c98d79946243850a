// autograd/ops/gelu.h: Gaussian error linear unit, exact (erf) or by tanh; kernels/gelu.h.
#pragma once

#include "kernels/gelu.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::GeluKind;

// x: any shape, f64 | f32 | bf16 | f16, outer strides free. The result is contiguous, of x's shape
// and dtype.
Tensor gelu(const Tensor& x, GeluKind kind = GeluKind::tanh);

}  // namespace zinc::autograd
