// autograd/ops/unary.h: element-wise functions of one tensor.
//
// x: any shape, f64 | f32 | bf16 | f16, outer strides free. The result is contiguous, of x's shape
// and dtype. Constants are rounded to f32 unless x is f64. Conventions at kinks and accuracy:
// kernels/unary.h.
#pragma once

#include <limits>
#include <string_view>

#include "kernels/unary.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// p, q: the constants that the op's line in kernels/elementwise_table.h names. `called`: the
// function's name in errors; empty: the op's.
Tensor unary(kernels::UnaryOp op, const Tensor& x, double p = 0.0, double q = 0.0,
             std::string_view called = {});

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
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);  // negative_slope x below 0
Tensor silu(const Tensor& x);
Tensor softplus(const Tensor& x);  // log(1 + e^x)
Tensor erf(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
// Values below `low` become low, above `high` high; their gradient is 0. low <= high.
Tensor clamp(const Tensor& x, double low, double high = std::numeric_limits<double>::infinity());
Tensor affine(const Tensor& x, double factor, double summand);  // factor x + summand

}  // namespace zinc::autograd
