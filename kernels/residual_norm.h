// kernels/residual_norm.h: residual addition and the norm that follows it, in one pass.
// sum[r,c] = x[r,c] + residual[r,c];  y = layernorm(sum) or rmsnorm(sum)
//
// Equals binary add followed by layernorm_forward or rmsnorm_forward bit for bit: the sum is
// rounded to its dtype before it is normalised. Backward: layernorm_backward or rmsnorm_backward
// with x = sum and dresidual = the gradient of `sum`; its dx is the gradient of x and of residual.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class NormKind : uint8_t { layer, rms };

// R rows are all dimensions before the last, C columns the last; rows lie at one stride.
struct ResidualNormForward {
  NormKind kind = NormKind::layer;
  ConstView x;          // [R, C] f64 | f32 | bf16 | f16
  ConstView residual;   // [R, C] dtype of x
  ConstView gamma;      // [C] dtype of x
  ConstView beta{};     // [C] dtype of x; may be absent; absent for rms
  View sum;             // [R, C] dtype of x, overwrites; may be x or residual itself
  View y;               // [R, C] dtype of x, overwrites; may be x or residual itself, not sum
  View mean{}, rstd{};  // [R] f32 (f64 for f64), overwritten; may be absent; mean is for layer only
  double eps = 1e-5;
};

// Asynchronous on `stream`. Deterministic.
void residual_norm_forward(const ResidualNormForward& args, StreamRef stream);
Cost cost(const ResidualNormForward& args);

}  // namespace zinc::kernels
