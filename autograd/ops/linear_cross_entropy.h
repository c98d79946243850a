// autograd/ops/linear_cross_entropy.h: the output head and its loss, without the logits of the
// whole batch; kernels/linear_cross_entropy.h.
#pragma once

#include <cstdint>

#include "autograd/weight.h"
#include "kernels/cross_entropy.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// When the head's gradients are computed: Note [Two ways to the head's gradient] in
// kernels/linear_cross_entropy.h.
enum class HeadGradient : uint8_t {
  // With the loss, while logits are at hand: 3/4 of the time, but gradients of the hidden states
  // and
  // of the weight are kept until backward. They are made for a backward whose loss gradient is
  // Mode::expected_loss_gradient (scope: ExpectedLossGradient) and scaled where another one comes;
  // the result is exact where their ratio is a power of two. f64 always takes the other way.
  in_forward,
  // In backward, from logits that are computed again, straight into the gradient's place.
  in_backward,
};

// loss = cross_entropy(hidden weight^T + bias, labels), summed over labelled rows: a scalar, f32
// (f64 for f64).
// hidden: [..., C] f64 | f32 | bf16 | f16, rows at one stride; weight: [V, C]; bias: [V], may be
// absent; dtype of hidden. labels: i32 | i64, contiguous, one for every row, -100: none.
// Deterministic; without gradients only the loss is computed.
Tensor linear_cross_entropy(const Tensor& hidden, const Weight& weight, const Tensor& labels,
                            const Weight& bias = {},
                            HeadGradient gradient = HeadGradient::in_forward);

}  // namespace zinc::autograd
