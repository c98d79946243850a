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
  // If not empty: only these elements are written, one at a time; y is then [n] without gaps.
  std::vector<TensorSlice::Piece> pieces{};
};

// Asynchronous on `stream`.
void fill(const Fill& args, StreamRef stream);
Cost cost(const Fill& args);

// Whether an integer dtype can represent the value. Floats represent every value, rounded.
bool is_value_of(DType dtype, double value);
// The bits of `value` as an element of `dtype`, rounded as Fill rounds, in the low bytes.
uint64_t bits_of(double value, DType dtype);

}  // namespace zinc::kernels
