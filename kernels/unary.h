// kernels/unary.h: element-wise functions of one argument, and their derivatives.
// y[i] = op(x[i]);  dx[i] = dy[i] * op'(x[i])
//
// The functions: kernels/elementwise_table.h. GELU has a header of its own. f32 functions are
// within 4 units in the last place of the exact value for every input (bound tested); power(x, p)
// is within |p log x| + 3. 16-bit floats are computed in f32 and rounded once.
// Conventions at kinks: relu'(0) = 0, abs'(0) = 0, clamp' = 1 at the ends of the range.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/elementwise_table.h"

namespace zinc::kernels {

std::string_view name_of(UnaryOp op);

struct Unary {
  UnaryOp op = UnaryOp::neg;
  ConstView x;  // f64 | f32 | bf16 | f16; stretches to the shape of y; outer strides are free
  View y;       // dtype of x, overwrites; may be x itself; outer strides are free
  double p = 0.0, q = 0.0;  // constants of the op, rounded to f32 first unless x is f64
};

struct UnaryBackward {
  UnaryOp op = UnaryOp::neg;
  ConstView x;   // the argument of the forward pass; outer strides are free, as for all views here
  ConstView dy;  // shape and dtype of x
  View dx;       // shape and dtype of x, overwrites; may be x or dy itself
  double p = 0.0, q = 0.0;  // as in the forward pass
};

// Asynchronous on `stream`. Deterministic.
void unary(const Unary& args, StreamRef stream);
void unary_backward(const UnaryBackward& args, StreamRef stream);
Cost cost(const Unary& args);
Cost cost(const UnaryBackward& args);

}  // namespace zinc::kernels
