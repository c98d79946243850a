// autograd/ops/scale.h: y = x * factor
#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace zinc::autograd {

// x: any shape, f64 | f32 | bf16 | f16, outer strides free. `factor` is rounded to f32 unless x is
// f64. The result is contiguous. `called`: as in unary().
Tensor scale(const Tensor& x, double factor, std::string_view called = "scale");

}  // namespace zinc::autograd
