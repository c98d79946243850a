// kernels/fill.h: y[i] = value
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Fill {
  View y;              // any shape and dtype, overwrites; outer strides are free
  double value = 0.0;  // floats: rounded to nearest even; integers: must be a value of the dtype
};

// Asynchronous on `stream`.
void fill(const Fill& args, StreamRef stream);
Cost cost(const Fill& args);

}  // namespace zinc::kernels
