// autograd/ops/gather_rows.h: rows by index, and the transpose; kernels/gather_rows.h.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::autograd {

// y[i,:] = x[ids[i],:]. x: [V, C], rows at one stride; ids: [N] i32 | i64, contiguous. Result:
// [N, C]. An id outside [0, V) is an InvalidArgument from the stream.
Tensor gather_rows(const Tensor& x, const Tensor& ids);
// y[ids[i],:] += x[i,:] from zeros; equal ids add in the order of i, in f32 (f64), rounded once.
// x: [N, C] float, rows at one stride; ids: [N]. Result: [num_rows, C].
Tensor scatter_rows(const Tensor& x, const Tensor& ids, int64_t num_rows);
// The same, starting from a copy of `onto`, [num_rows, C] of x's dtype, in place of zeros.
Tensor scatter_rows(const Tensor& x, const Tensor& ids, const Tensor& onto);

}  // namespace zinc::autograd
