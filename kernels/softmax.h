// kernels/softmax.h: softmax of every row.
//   y[r,c] = exp(x[r,c] - max_c x[r,:]) / sum_c exp(x[r,c] - max_c x[r,:])
// Sums in f32 (f64 for f64) in a fixed order. Deterministic. A row of -infinity only gives NaN.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct SoftmaxForward {
  ConstView x;  // [..., cols] f64 | f32 | bf16 | f16, contiguous
  View y;       // shape and dtype of x, contiguous; may be x
};
void softmax_forward(const SoftmaxForward& args, StreamRef stream);
Cost cost(const SoftmaxForward& args);

// dx[r,c] = y[r,c] * (dy[r,c] - sum_k dy[r,k] y[r,k])
struct SoftmaxBackward {
  ConstView dy;  // [..., cols] f64 | f32 | bf16 | f16, contiguous
  ConstView y;   // shape and dtype of dy, contiguous: forward's result
  View dx;       // shape and dtype of dy, contiguous; overwritten; may be dy or y
};
void softmax_backward(const SoftmaxBackward& args, StreamRef stream);
Cost cost(const SoftmaxBackward& args);

}  // namespace zinc::kernels
