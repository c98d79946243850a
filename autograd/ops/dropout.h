// autograd/ops/dropout.h: inverted dropout; kernels/dropout.h.
//
// The choice of elements depends on the context's random state, the site and the element alone, not
// on schedule or recomputation. No mask is stored.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

struct DropoutOptions {
  // probability of a zero, in [0, 1]; 0: the op does nothing and draws nothing
  double probability = 0.0;
  uint64_t site = 0;  // hash_text of the module's path
};

// x, residual: any shape, f64 | f32 | bf16 | f16, contiguous.
Tensor dropout(const Tensor& x, const DropoutOptions& options);
// residual + dropout(x), rounded once.
Tensor dropout_residual(const Tensor& x, const Tensor& residual, const DropoutOptions& options);

}  // namespace zinc::autograd
