// autograd/ops/softmax.h: softmax over the last dimension; kernels/softmax.h.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// x: [..., cols] f64 | f32 | bf16 | f16, contiguous. Result: x's shape. Sums in f32 (f64).
Tensor softmax(const Tensor& x);

}  // namespace zinc::autograd
