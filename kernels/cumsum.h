// kernels/cumsum.h: sums of the elements before and at every place of a row.
// y[r, c] = x[r, 0] + ... + x[r, c];  reverse: y[r, c] = x[r, c] + ... + x[r, cols - 1]
//
// In f32 (f64 for f64), rounded once; on the CPU one after the other, on a GPU in a fixed tree, so
// that the bits of the two differ.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Cumsum {
  ConstView x;           // [..., cols] f64 | f32 | bf16 | f16, contiguous
  bool reverse = false;  // sums from the end, as the gradient needs them
  View y;                // shape and dtype of x, contiguous, overwrites; may be x
};

// Asynchronous on `stream`. Deterministic.
void cumsum(const Cumsum& args, StreamRef stream);
Cost cost(const Cumsum& args);

}  // namespace zinc::kernels
