// autograd/functions/losses.h: losses, made of ops.
//
// A loss is a scalar, the sum over its elements or rows, as cross_entropy() gives it. It is not
// divided by their number; the engine divides once for all micro-batches. `/ n` gives a mean. f32
// for f32, bf16 and f16, f64 for f64.
#pragma once

#include "kernels/cross_entropy.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// logits - logsumexp(logits), and the softmax's derivative of it, over one dimension. 16-bit floats
// are computed in f32 and rounded once. cross_entropy and linear_cross_entropy are faster losses.
Tensor log_softmax(const Tensor& x, int dim = -1);
// sum (x - target)^2; shapes stretch to each other
Tensor mse_loss(const Tensor& x, const Tensor& target);
// sum max(x, 0) - x target + log(1 + e^-|x|), which is -target log sigmoid(x) - (1 - target)
// log(1 - sigmoid(x)). target: shape and dtype of x, in [0, 1].
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target);
// -sum log_probabilities[r, labels[r]] over rows with a label; -100 is none.
// log_probabilities: [..., V] float; labels: [...] i32 | i64
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels);
// Cross entropy with (1 - smoothing) onehot(label) + smoothing / V as the target (C. Szegedy et
// al., Rethinking the Inception architecture, 2016, section 7). 0 <= smoothing <= 1
Tensor smoothed_cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing);
// sum logsumexp(logits)^2 over rows with a label: keeps logits from drifting (A. Chowdhery et al.,
// PaLM, 2022, section 5: 1e-4 of it is added to the loss).
Tensor z_loss(const Tensor& logits, const Tensor& labels);

}  // namespace zinc::autograd
