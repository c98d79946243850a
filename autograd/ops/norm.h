// autograd/ops/norm.h: layer and root-mean-square normalisation of rows, alone and fused with the
// residual addition before them. Formulas: kernels/layernorm.h, kernels/rmsnorm.h.
//
// x, residual: [..., C] f64 | f32 | bf16 | f16, rows at one stride; gamma, beta: [C], dtype of x.
// Results are contiguous, of x's shape. Statistics in f32 (f64). Deterministic.
#pragma once

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// gamma and beta may be absent: 1 and 0.
Tensor layernorm(const Tensor& x, const Weight& gamma = {}, const Weight& beta = {},
                 double eps = 1e-5);
Tensor rmsnorm(const Tensor& x, const Weight& gamma, double eps = 1e-5);

struct ResidualNorm {
  Tensor sum;     // x + residual: the residual stream from here on
  Tensor normed;  // the norm of sum
};
// Bits of add() followed by the norm, in one pass forward and one backward.
ResidualNorm residual_layernorm(const Tensor& x, const Tensor& residual, const Weight& gamma,
                                const Weight& beta = {}, double eps = 1e-5);
ResidualNorm residual_rmsnorm(const Tensor& x, const Tensor& residual, const Weight& gamma,
                              double eps = 1e-5);

}  // namespace zinc::autograd
