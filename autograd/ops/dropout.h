// autograd/ops/dropout.h: inverted dropout; kernels/dropout.h.
//
// Which elements go depends on the context's random state, the site and the element alone: not on
// the schedule, nor on recomputation. No mask is stored.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

struct DropoutOptions {
  double probability = 0.0;  // of a zero, in [0, 1]; 0: the op does nothing and draws nothing
  uint64_t site = 0;         // hash_text of the module's path
};

// x, residual: any shape, f64 | f32 | bf16 | f16, contiguous.
Tensor dropout(const Tensor& x, const DropoutOptions& options);
// residual + dropout(x), rounded once.
Tensor dropout_residual(const Tensor& x, const Tensor& residual, const DropoutOptions& options);

}  // namespace zinc::autograd
