// autograd/ops/matmul.h: products of matrices and of stacks of matrices.
//   C = alpha * op(A) op(B)      op: as stored or transposed
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
};

// a: [..., M, K] (stored [..., K, M] where transposed), b: [..., K, N] (stored [..., N, K]); one
// float dtype; outer strides free. Leading dimensions agree, or b is a matrix and a, not
// transposed, is seen as one matrix of all its rows. Result: [..., M, N], contiguous. Sums in f32
// (f64), rounded once. Deterministic.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace zinc::autograd
