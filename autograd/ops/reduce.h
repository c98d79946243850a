// autograd/ops/reduce.h: sum, mean and maximum; order of sums: kernels/reduce.h.
#pragma once

#include "kernels/reduce.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::ReduceOver;

// x: f64 | f32 | bf16 | f16, rows at one stride. Result: dtype of x; x's shape without its last
// dimension (last), [last dimension] (leading), or a scalar (all). The maximum's gradient goes to
// the first element that equals it.
Tensor sum(const Tensor& x, ReduceOver over = ReduceOver::all);
Tensor mean(const Tensor& x, ReduceOver over = ReduceOver::all);
Tensor max(const Tensor& x, ReduceOver over = ReduceOver::all);

}  // namespace zinc::autograd
