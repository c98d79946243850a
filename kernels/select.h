// kernels/select.h: y[i] = mask[i] ? a[i] : b[i], bit for bit. With a = 0 or b = 0 it is the
// gradient of itself.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Select {
  ConstView mask;  // u8, 0 or not; stretches to the shape of y, as a and b; outer strides are free
  ConstView a{};   // dtype of y; absent: a_value
  double a_value = 0.0;  // rounded to the dtype of y; integers: a whole number
  ConstView b{};         // as `a`, with b_value
  double b_value = 0.0;
  View y;  // any dtype, overwrites; may be a or b itself; outer strides are free
};

// Asynchronous on `stream`.
void select(const Select& args, StreamRef stream);
Cost cost(const Select& args);

}  // namespace zinc::kernels
