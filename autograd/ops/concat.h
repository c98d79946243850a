// autograd/ops/concat.h: tensors side by side along one dimension; kernels/concat.h.
#pragma once

#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::autograd {

// Any dtype, outer strides free; all other extents and the dtype agree. At least one part. Negative
// dims count from the end. The result is contiguous; backward gives views of its gradient.
Tensor concat(std::span<const Tensor> parts, int dim);
inline Tensor concat(const std::vector<Tensor>& parts, int dim) {
  return concat(std::span<const Tensor>(parts), dim);
}

}  // namespace zinc::autograd
