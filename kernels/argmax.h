// kernels/argmax.h: the index of the largest element of every row, the first where several are
// equal. A NaN is larger than all.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Argmax {
  ConstView x;            // [rows, cols] f64 | f32 | bf16 | f16, cols >= 1; rows at one stride
  bool smallest = false;  // the index of the smallest element instead
  View y;                 // [rows] i64, contiguous, overwrites
};

// Asynchronous on `stream`. Deterministic.
void argmax(const Argmax& args, StreamRef stream);
Cost cost(const Argmax& args);

}  // namespace zinc::kernels
