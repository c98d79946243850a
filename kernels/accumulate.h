// kernels/accumulate.h: gradient accumulation across dtypes.
// accumulator[i] = accumulator[i] + x[i], or x[i] where `overwrite`; added in f32 (f64 where the
// accumulator is f64), rounded once to the accumulator's dtype.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Accumulate {
  ConstView x;             // [n] f32 | bf16 | f16, or f64 with an f64 accumulator; contiguous
  View accumulator;        // [n] f64 | f32 | bf16 | f16, contiguous; must not overlap x
  bool overwrite = false;  // the first micro-batch: the old values are not read
};

// Asynchronous on `stream`. Deterministic.
void accumulate(const Accumulate& args, StreamRef stream);
Cost cost(const Accumulate& args);

}  // namespace zinc::kernels
