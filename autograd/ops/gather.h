// autograd/ops/gather.h: elements by index along any dimension, and sums into indexed places.
//
// x: any dtype for reading, f64 | f32 | bf16 | f16 for sums and gradients; at most 2^31 elements.
// index: i32 | i64. Negative dimensions count from the end. An index outside [0, x.dim(dim)) is an
// InvalidArgument from the stream; on a GPU from the next wait for the device. Sums into one place
// are in the order of the index's elements, in f32 (f64), rounded once. Results are contiguous.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

// y[i, j, k] = x[i, index[i, j, k], k] for dim = 1; index has x's extents but for `dim`. Result:
// the shape of index.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// y = x, and y[i, index[i, j, k], k] += source[i, j, k] for dim = 1; index and source are of one
// shape, which has x's extents but for `dim`.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
// y[i, j, k] = x[i, ids[j], k] for dim = 1. ids: [N]. Result: x's shape with N in the place of
// `dim`.
Tensor index_select(const Tensor& x, int dim, const Tensor& ids);

}  // namespace zinc::autograd
