// autograd/ops/expand.h: a tensor repeated to a larger shape; a copy. Operators stretch their
// operands without it.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// x: f64 | f32 | bf16 | f16, outer strides free; its shape stretches to `shape`
// (kernels/broadcast.h). The gradient is summed over the repetitions, in f32 (f64).
Tensor expand(const Tensor& x, const Shape& shape);
// The transpose of expand(): `x` summed over the dimensions that `shape` lacks or where it has an
// extent of 1.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace zinc::autograd
