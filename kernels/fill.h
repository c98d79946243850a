// kernels/fill.h: y[i] = value
#pragma once

#include <vector>

#include "core/stream.h"
#include "core/tensor_slice.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Fill {
  View y;              // any shape and dtype, overwrites; outer strides are free
  double value = 0.0;  // floats: rounded to nearest even; integers: must be a value of the dtype
  // Of a y [n] without gaps: these elements alone, an element at a time. Empty: all of y.
  std::vector<TensorSlice::Piece> pieces{};
};

// Asynchronous on `stream`.
void fill(const Fill& args, StreamRef stream);
Cost cost(const Fill& args);

// Whether an integer dtype has the value; floats have all, rounded.
bool is_value_of(DType dtype, double value);
// The bits of `value` as an element of `dtype`, rounded as Fill rounds, in the low bytes.
uint64_t bits_of(double value, DType dtype);

}  // namespace zinc::kernels
