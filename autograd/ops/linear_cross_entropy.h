// autograd/ops/linear_cross_entropy.h: the output head and its loss, without the logits of the
// whole batch; kernels/linear_cross_entropy.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "autograd/linear_slices.h"
#include "autograd/weight.h"
#include "kernels/cross_entropy.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// When the head's gradients are computed: Note [Two ways to the head's gradient] in
// kernels/linear_cross_entropy.h.
enum class HeadGradient : uint8_t {
  // In forward, while logits are at hand: 3/4 of the time, but the gradients of the hidden states
  // and the weight are kept until backward. They are made for the gradient of the loss in
  // Mode::expected_loss_gradient (scope: ExpectedLossGradient) and scaled where backward brings
  // another one; the result is exact where the ratio of the two is a power of two. f64 always takes
  // in_backward.
  in_forward,
  // In backward, from logits that are computed again, straight into the memory of the gradient.
  in_backward,
};

// The classes that `weight` holds rows of, where other ranks hold the others: kernels::ClassSlice.
struct ClassShare {
  kernels::ClassSlice slice{};
  // Turns lse [P, N] and loss [P] of this rank's P slices into lse and loss of all classes, in the
  // first row of each, as work issued to the compute stream. labels: [N]; rows of kIgnoredLabel
  // have lse 0.
  std::function<void(const Tensor& lse, const Tensor& loss, const Tensor& labels)> combine{};
  // The slices of this rank's classes. Null: one slice.
  std::shared_ptr<const LinearSlices> slices{};
  bool is_whole() const { return slice.total == 0; }
};

// loss = cross_entropy(hidden weight^T + bias, labels), summed over labelled rows: a scalar, f32
// (f64 for f64).
// hidden: [..., C] f64 | f32 | bf16 | f16, rows at one stride; weight: [V, C]; bias: [V], may be
// absent; dtype of hidden. labels: i32 | i64, contiguous, one for every row, -100: none.
// Deterministic; without gradients only the loss is computed. With a share of the classes the
// head's gradient is made in_backward, and hidden's is this rank's part of a sum; with
// ClassShare::slices it is the sum.
Tensor linear_cross_entropy(const Tensor& hidden, const Weight& weight, const Tensor& labels,
                            const Weight& bias = {},
                            HeadGradient gradient = HeadGradient::in_forward,
                            const ClassShare& share = {});

}  // namespace zinc::autograd
