// kernels/scale.h: y[i] = x[i] * (factor * device_factor[0])
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Scale {
  ConstView x;                // any shape, f64 | f32 | bf16 | f16; outer strides are free
  double factor = 1.0;        // rounded to f32 first unless x is f64
  ConstView device_factor{};  // [1] f32 on the device; absent: 1
  View y;  // shape and dtype of x, overwrites; may be x itself; outer strides are free
};

// Asynchronous on `stream`. The product of the two factors is rounded once (f32; f64 for f64), then
// each element once. Deterministic.
void scale(const Scale& args, StreamRef stream);
Cost cost(const Scale& args);

}  // namespace zinc::kernels
