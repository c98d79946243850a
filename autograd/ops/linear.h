// autograd/ops/linear.h: y = activation(x W^T + bias) or addend + x W^T + bias, the layer that
// transformers are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/linear_products.h"
#include "autograd/linear_slices.h"
#include "autograd/weight.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::Activation;

struct LinearOptions {
  WeightLayout layout = WeightLayout::out_in;
  Activation activation = Activation::none;  // in the epilogue of the product
  // Weight and bias are a part of a layer, cut in these slices; null: the whole layer. Where inputs
  // are cut, there is no bias and no activation. Result and gradients are those of the whole layer.
  std::shared_ptr<const LinearSlices> slices{};
  // Makes the result y of a product some rows at a time: make(begin, count) computes rows of y,
  // seen as a matrix, and is called until all rows are made. So rows can be received before they
  // are made, or sent afterwards, beside the product of other rows. The function may change rows in
  // place; backward passes the gradient on unchanged. Empty: all rows at once.
  using InRows =
      std::function<void(const Tensor& y, const std::function<void(int64_t, int64_t)>& make)>;
  InRows in_rows{};
  // The three products take codes of 8 bits: autograd/linear_fp8.h. x is bf16. Not with slices.
  bool fp8 = false;
  // Added before the sum is rounded; shape and dtype of the result. Not with an activation, slices
  // or in_rows. Its gradient is the gradient of the result.
  Tensor addend{};
};

// x: [..., in] f64 | f32 | bf16 | f16, rows at one stride. weight: as `layout` says; bias: [out],
// may be absent; dtype of x. Result: [..., out], contiguous. Sums in f32 (f64), rounded once. With
// an activation the pre-activation is rounded to the dtype of x first, as between two ops.
// Deterministic.
Tensor linear(const Tensor& x, const Weight& weight, const Weight& bias = {},
              const LinearOptions& options = {});

struct LinearWeight {
  Weight weight;  // [out_i, in]
  Weight bias{};  // [out_i]; of all of a layer's weights or of none
};
// The layer whose weight is all of `parts`, one behind the other, as one product: [..., sum of
// out_i]. Note [Weights side by side] in autograd/weight.h. Each weight gets its own gradient. Not
// for slices and WeightLayout::in_out. In 8 bits the parts share one scale.
Tensor linear(const Tensor& x, const std::vector<LinearWeight>& parts,
              const LinearOptions& options = {});

}  // namespace zinc::autograd
