// kernels/swiglu.h: gated linear unit with the SiLU gate (Shazeer, "GLU variants improve
// transformer", 2020, eq. 6, without its matrix products).
// y = silu(gate) * up;  silu(z) = z * sigmoid(z)
// dgate = dy * up * silu'(gate);  dup = dy * silu(gate)
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// gate and up are two tensors or the two halves of one [..., 2 * C] buffer: outer strides are free
// for all views here.
struct SwiGluForward {
  ConstView gate;  // [..., C] f64 | f32 | bf16 | f16
  ConstView up;    // shape and dtype of gate
  View y;          // shape and dtype of gate, overwrites; may be gate or up itself
};

struct SwiGluBackward {
  ConstView dy;    // [..., C]
  ConstView gate;  // [..., C] of the forward pass
  ConstView up;    // [..., C] of the forward pass
  View dgate;      // [..., C] overwrites; may be gate, up or dy itself
  View dup;        // [..., C] overwrites; may be gate, up or dy itself, not dgate
};

// Asynchronous on `stream`. Computed in f32 (f64 for f64), rounded once. Deterministic.
void swiglu_forward(const SwiGluForward& args, StreamRef stream);
void swiglu_backward(const SwiGluBackward& args, StreamRef stream);
Cost cost(const SwiGluForward& args);
Cost cost(const SwiGluBackward& args);

}  // namespace zinc::kernels
