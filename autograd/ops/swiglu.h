// autograd/ops/swiglu.h: y = silu(gate) * up; kernels/swiglu.h.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// gate, up: [..., C] f64 | f32 | bf16 | f16, one shape and dtype, outer strides free. The result is
// contiguous, of their shape.
Tensor swiglu(const Tensor& gate, const Tensor& up);
// gate_up: [..., 2 C], the gate first; rows may be strided. Result: [..., C]. Backward writes both
// halves into one buffer.
Tensor swiglu(const Tensor& gate_up);

}  // namespace zinc::autograd
