// kernels/unary.h: element-wise functions of one argument, and their derivatives.
// y[i] = op(x[i]);  dx[i] = dy[i] * op'(x[i])
//
// GELU has a header of its own. f32 functions are within 4 units in the last place of the exact
// value for every input (bound tested); 16-bit floats are computed in f32 and rounded once.
// Conventions at kinks: relu'(0) = 0, abs'(0) = 0.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class UnaryOp : uint8_t {
  neg,
  abs,
  square,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  log,
  tanh,
  sigmoid,
  relu,
  silu,  // x * sigmoid(x)
};
std::string_view name_of(UnaryOp op);

struct Unary {
  UnaryOp op = UnaryOp::neg;
  ConstView x;  // any shape, f64 | f32 | bf16 | f16; outer strides are free
  View y;       // shape and dtype of x, overwrites; may be x itself; outer strides are free
};

struct UnaryBackward {
  UnaryOp op = UnaryOp::neg;
  ConstView x;   // the argument of the forward pass; outer strides are free, as for all views here
  ConstView dy;  // shape and dtype of x
  View dx;       // shape and dtype of x, overwrites; may be x or dy itself
};

// Asynchronous on `stream`. Deterministic.
void unary(const Unary& args, StreamRef stream);
void unary_backward(const UnaryBackward& args, StreamRef stream);
Cost cost(const Unary& args);
Cost cost(const UnaryBackward& args);

}  // namespace zinc::kernels
