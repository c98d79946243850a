// autograd/ops/cross_entropy.h: summed negative log likelihood of labels; kernels/cross_entropy.h.
#pragma once

#include "kernels/cross_entropy.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::kIgnoredLabel;  // -100: no loss, no gradient

// logits: [..., V] f64 | f32 | bf16 | f16, rows at one stride; labels: i32 | i64, contiguous, one
// for every row. Result: the sum over labelled rows, a scalar, f32 (f64 for f64); never divided by
// their number. A label outside [0, V) other than -100 is an InvalidArgument from the stream.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

}  // namespace zinc::autograd
