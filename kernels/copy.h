// kernels/copy.h: y[i] = x[i], between any outer strides, converting the dtype where they differ.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// Floats convert to floats by rounding to nearest even (f64 to a 16-bit format goes by f32, which
// rounds twice); integers to integers by two's-complement wrapping; integers to floats by rounding.
// Floats to integers is an error. The same dtype is a copy of bytes.
struct Copy {
  ConstView x;  // any shape and dtype; outer strides are free
  View y;       // shape of x, any dtype as above, overwrites; must not overlap x; outer strides are
                // free
};

// Asynchronous on `stream`.
void copy(const Copy& args, StreamRef stream);
Cost cost(const Copy& args);

}  // namespace zinc::kernels
