// autograd/ops/rotary.h: rotary position embedding of the heads of a row; kernels/rotary.h.
#pragma once

#include <cstdint>

#include "kernels/rotary.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::RotaryLayout;

// Cosines and sines, [positions, rotary_dims / 2] f32 (f64 for f64 activations).
struct RotaryTable {
  Tensor cos;
  Tensor sin;
};
// The table of positions 0 .. positions - 1, on the current context's device, for activations of
// that dtype.
RotaryTable make_rotary_table(int64_t positions, int64_t rotary_dims, double theta,
                              const kernels::RotaryScaling& scaling = {},
                              DType activations = DType::f32);

struct RotaryOptions {
  int64_t head_size = 0;  // D
  int64_t num_heads = 0;  // the first heads of a row that turn; the rest of the row stays
  RotaryLayout layout = RotaryLayout::half_split;
  Tensor positions;   // [B, T] i32 | i64: rows of the table; undefined: start + t
  int64_t start = 0;  // position of t = 0 where `positions` is undefined
};

// x: [B, T, n * D] f64 | f32 | bf16 | f16, outer strides free; for a packed QKV row num_heads
// counts the heads of q and k together. Result: x's shape. Turns in place, without a copy, where x
// is handed over (std::move) as the only handle on its memory. Asynchronous, deterministic.
Tensor rotary(Tensor x, const RotaryTable& table, const RotaryOptions& options);

}  // namespace zinc::autograd
