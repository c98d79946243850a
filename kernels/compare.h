// kernels/compare.h: masks: y[i] = op(a[i], b[i]) ? 1 : 0. The functions:
// kernels/elementwise_table.h.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/elementwise_table.h"

namespace zinc::kernels {

std::string_view name_of(CompareOp op);

struct Compare {
  CompareOp op = CompareOp::eq;
  ConstView a;           // any dtype; stretches to the shape of y; outer strides are free
  ConstView b{};         // dtype of a, as a; absent: b_value
  double b_value = 0.0;  // integers: a whole number; else rounded to f32 first unless a is f64
  View y;                // [...] u8, overwrites; outer strides are free
};

// Asynchronous on `stream`. A comparison with a NaN is false, but for ne.
void compare(const Compare& args, StreamRef stream);
Cost cost(const Compare& args);

}  // namespace zinc::kernels
