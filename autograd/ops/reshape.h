// autograd/ops/reshape.h: the same elements under another shape, without a copy.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// x: any dtype, contiguous. The result shares x's memory.
Tensor reshape(const Tensor& x, const Shape& shape);

}  // namespace zinc::autograd
