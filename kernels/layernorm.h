// kernels/layernorm.h: row-wise layer normalisation (Ba et al., "Layer normalization", 2016, eq.
// 4). y[r,c] = (x[r,c] - mean[r]) * rstd[r] * gamma[c] + beta[c] mean[r] = sum_c x[r,c] / C;
// rstd[r] = 1 / sqrt(sum_c (x[r,c] - mean[r])^2 / C + eps)
//
// Backward, with h = (x - mean) * rstd and g = dy * gamma:
// dx[r,c] = rstd[r] * (g[r,c] - sum_c(g)/C - h[r,c] * sum_c(g * h)/C)
// dgamma[c] = sum_r dy[r,c] * h[r,c];  dbeta[c] = sum_r dy[r,c]
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// R rows are all dimensions before the last, C columns the last; rows lie at one stride.
struct LayerNormForward {
  ConstView x;       // [R, C] f64 | f32 | bf16 | f16
  ConstView gamma;   // [C] dtype of x
  ConstView beta{};  // [C] dtype of x; may be absent: 0
  View y;            // [R, C] dtype of x, overwrites; may be x itself
  View mean{},
      rstd{};  // [R] f32 (f64 for f64), overwritten; saved for backward; both may be absent
  double eps = 1e-5;
};

struct LayerNormBackward {
  ConstView dy;           // [R, C] dtype of x
  ConstView x;            // [R, C] of the forward pass
  ConstView gamma;        // [C] dtype of x
  ConstView mean, rstd;   // [R] f32 (f64 for f64), of the forward pass
  ConstView dresidual{};  // [R, C] dtype of x; may be absent. Added to dx before it is rounded: the
                          // gradient that reaches x past the norm.
  View dx;                // [R, C] dtype of x, overwrites; may be dy, x or dresidual itself
  View dgamma{}, dbeta{};          // [C] dtype of x or f32; each may be absent
  bool accumulate_dgamma = false;  // add (in f32, then round) instead of overwriting
  bool accumulate_dbeta = false;
  View workspace{};  // u8, at least norm_backward_workspace_bytes(R, C, dtype and device of x); may
                     // be absent where dgamma and dbeta are
};

// Bytes of workspace that the backward passes of layernorm and rmsnorm take for their partial sums
// of columns. A function of its arguments alone.
int64_t norm_backward_workspace_bytes(int64_t rows, int64_t cols, DType dtype, DeviceKind device);

// Asynchronous on `stream`. Statistics and sums in f32 (f64). Deterministic: dgamma and dbeta are
// summed over blocks of rows whose number depends on R alone.
void layernorm_forward(const LayerNormForward& args, StreamRef stream);
void layernorm_backward(const LayerNormBackward& args, StreamRef stream);
Cost cost(const LayerNormForward& args);
Cost cost(const LayerNormBackward& args);

}  // namespace zinc::kernels
