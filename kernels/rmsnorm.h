// kernels/rmsnorm.h: row-wise root-mean-square normalisation (Zhang and Sennrich, "Root mean square
// layer normalization", NeurIPS 2019, eq. 4).
// y[r,c] = x[r,c] * rstd[r] * gamma[c];  rstd[r] = 1 / sqrt(sum_c x[r,c]^2 / C + eps)
//
// Backward, with h = x * rstd and g = dy * gamma:
// dx[r,c] = rstd[r] * (g[r,c] - h[r,c] * sum_c(g * h)/C);  dgamma[c] = sum_r dy[r,c] * h[r,c]
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// R rows are all dimensions before the last, C columns the last; rows lie at one stride.
struct RmsNormForward {
  ConstView x;      // [R, C] f64 | f32 | bf16 | f16
  ConstView gamma;  // [C] dtype of x
  View y;           // [R, C] dtype of x, overwrites; may be x itself
  View rstd{};      // [R] f32 (f64 for f64), overwritten; saved for backward; may be absent
  double eps = 1e-5;
};

struct RmsNormBackward {
  ConstView dy;           // [R, C] dtype of x
  ConstView x;            // [R, C] of the forward pass
  ConstView gamma;        // [C] dtype of x
  ConstView rstd;         // [R] f32 (f64 for f64), of the forward pass
  ConstView dresidual{};  // [R, C] dtype of x; may be absent. Added to dx before it is rounded: the
                          // gradient that reaches x past the norm.
  View dx;                // [R, C] dtype of x, overwrites; may be dy, x or dresidual itself
  View dgamma{};          // [C] dtype of x or f32; may be absent
  bool accumulate_dgamma = false;  // add (in f32, then round) instead of overwriting
  View workspace{};  // u8, at least norm_backward_workspace_bytes(R, C, dtype and device of x) of
                     // layernorm.h; may be absent where dgamma is
};

// Asynchronous on `stream`. Statistics and sums in f32 (f64). Deterministic, as layernorm.
void rmsnorm_forward(const RmsNormForward& args, StreamRef stream);
void rmsnorm_backward(const RmsNormBackward& args, StreamRef stream);
Cost cost(const RmsNormForward& args);
Cost cost(const RmsNormBackward& args);

}  // namespace zinc::kernels
