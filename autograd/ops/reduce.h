// autograd/ops/reduce.h: sums, means and extremes along any dimensions; order of sums:
// kernels/reduce.h.
//
// x: f64 | f32 | bf16 | f16, outer strides free. Result: dtype of x, contiguous; x's shape without
// the dimensions, or with an extent of 1 in their places (keepdim). The last dimensions, and the
// leading ones, are reduced where they lie; others are permuted to the end first, by a copy. The
// gradient of an extreme goes to the first element that equals it. The mean of nothing is NaN, an
// extreme of nothing an InvalidArgument.
#pragma once

#include "autograd/dims.h"
#include "kernels/reduce.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::ReduceOver;

// Over the last dimension, the leading ones or all: x of rank >= 1, rows at one stride; `leading`
// gives [last dimension].
Tensor sum(const Tensor& x, ReduceOver over = ReduceOver::all);
Tensor mean(const Tensor& x, ReduceOver over = ReduceOver::all);
Tensor max(const Tensor& x, ReduceOver over = ReduceOver::all);

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor min(const Tensor& x, const Dims& dims, bool keepdim = false);
// sum (x - mean)^2 / (n - correction) over n elements; correction 1 is torch's default.
Tensor var(const Tensor& x, const Dims& dims, bool keepdim = false, int correction = 1);
// log sum exp x without overflow; the gradient is softmax. 16-bit floats are computed in f32.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace zinc::autograd
