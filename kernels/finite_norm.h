// kernels/finite_norm.h: finite check and squared norm in one pass over a gradient.
//
// chunk_sums[k] = sum of x[i]^2 over 1024 k <= i < min(n, 1024 (k + 1)), in f64: squares of f32 are
// exact in f64; lane l of 16 adds the elements l, l + 16, ... of the chunk in order, then lanes are
// added as a binary tree (l takes l + 8, l + 4, l + 2, l + 1). Fold them by chunk_tree_sum.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

inline constexpr int64_t kNormChunk = 1024;  // elements
inline int64_t num_norm_chunks(int64_t n) { return (n + kNormChunk - 1) / kNormChunk; }

struct FiniteNorm {
  ConstView x;           // [n] f64 | f32 | bf16 | f16, contiguous
  View chunk_sums;       // [num_norm_chunks(n)] f64, contiguous, overwrites
  View first_nonfinite;  // [1] i64, overwrites: index of the first NaN or infinity; -1: none
};

// Asynchronous on `stream`. Deterministic.
void finite_norm(const FiniteNorm& args, StreamRef stream);
Cost cost(const FiniteNorm& args);

}  // namespace zinc::kernels
