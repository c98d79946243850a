// kernels/gelu.h: Gaussian error linear unit (Hendrycks and Gimpel, 2016).
// erf:  y = x * (1 + erf(x / sqrt(2))) / 2
// tanh: y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
// dx = dy * y'(x)
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class GeluKind : uint8_t { erf, tanh };

struct GeluForward {
  GeluKind kind = GeluKind::tanh;
  ConstView x;  // any shape, f64 | f32 | bf16 | f16; outer strides are free
  View y;       // shape and dtype of x, overwrites; may be x itself; outer strides are free
};

struct GeluBackward {
  GeluKind kind = GeluKind::tanh;
  ConstView x;   // the argument of the forward pass; outer strides are free, as for all views here
  ConstView dy;  // shape and dtype of x
  View dx;       // shape and dtype of x, overwrites; may be x or dy itself
};

// Asynchronous on `stream`. Computed in f32 (f64 for f64), rounded once. Deterministic.
void gelu_forward(const GeluForward& args, StreamRef stream);
void gelu_backward(const GeluBackward& args, StreamRef stream);
Cost cost(const GeluForward& args);
Cost cost(const GeluBackward& args);

}  // namespace zinc::kernels
