// kernels/fp8_round.h: rounding a tensor to 8 bits with a scale of its own ("current scaling").
//   y = x on the grid of `format`, as Note [Scales of 8 bits] of core/float8.h has it
// The scale follows the largest magnitude of all of x.
#pragma once

#include "core/float8.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Fp8Round {
  ConstView x;  // bf16, outer strides free
  Fp8 format = Fp8::e4m3;
  View y;                 // shape and dtype of x; may be x
  View largest;           // [1] f32, overwritten: the largest magnitude of x; a NaN where x has one
  bool is_known = false;  // largest is only read: an earlier call has found it
};

// Asynchronous on `stream`. The same bits on every device. NaN and infinities of x stay as they
// are, and the rest is then rounded without a scale. Throws InvalidArgument for wrong shapes and
// dtypes.
void fp8_round(const Fp8Round& args, StreamRef stream);
Cost cost(const Fp8Round& args);

}  // namespace zinc::kernels
