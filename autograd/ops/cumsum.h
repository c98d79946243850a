// autograd/ops/cumsum.h: running sums along one dimension; kernels/cumsum.h.
#pragma once

#include "tensor/tensor.h"

namespace zinc::autograd {

// y[..., c] = x[..., 0] + ... + x[..., c] along `dim`. x: f64 | f32 | bf16 | f16, outer strides
// free; negative dims count from the end. Sums in f32 (f64), rounded once. Another dimension than
// the last is permuted there and back, by copies.
Tensor cumsum(const Tensor& x, int dim = -1);

}  // namespace zinc::autograd
