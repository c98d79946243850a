// autograd/functions/padding.h: sequences that are shorter than their batch.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

// mask[b, t] = t < lengths[b]. lengths: [B] i32 | i64. Result: [B, T] u8.
Tensor length_mask(const Tensor& lengths, int64_t T);
// y[b] = sum over t < lengths[b] of x[b, t] / lengths[b]: a sequence as one row, without its
// padding, which may hold NaN. x: [B, T, C] float; lengths: [B] i32 | i64, at least 1; undefined:
// all T. Result: [B, C]. Sums in f32 (f64).
Tensor mean_over_tokens(const Tensor& x, const Tensor& lengths);

}  // namespace zinc::autograd
