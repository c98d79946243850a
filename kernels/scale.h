// kernels/scale.h: y[i] = x[i] * (factor * device_factor[0]), or
// y[i] = x[i] * (factor / max(sqrt(sum_of_squares[0]), least_norm))
#pragma once

#include <cmath>

#include "core/host_device.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Scale {
  ConstView x;                // any shape, f64 | f32 | bf16 | f16; outer strides are free
  double factor = 1.0;        // rounded to f32 first unless x is f64
  ConstView device_factor{};  // [1] f32 on the device; absent: 1
  // [1] f64 on the device, as kernels/chunk_tree_sum.h leaves it; may be absent, and is where there
  // is a device_factor. A NaN makes all of y NaN.
  ConstView sum_of_squares{};
  double least_norm = 0.0;  // above 0 with sum_of_squares
  View y;  // shape and dtype of x, overwrites; may be x itself; outer strides are free
};

// Asynchronous on `stream`. The product of the two factors is rounded once (f32; f64 for f64), then
// each element once. The quotient is computed in f64, then rounded likewise. Deterministic.
void scale(const Scale& args, StreamRef stream);
Cost cost(const Scale& args);

// The quotient. For the kernels.
ZINC_HOST_DEVICE inline double over_norm(double factor, double sum_of_squares, double least_norm) {
  const double norm = sqrt(sum_of_squares);
  return factor / (norm < least_norm ? least_norm : norm);
}

}  // namespace zinc::kernels
