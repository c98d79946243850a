// autograd/ops/linear.h: y = activation(x W^T + bias), the layer that transformers are made of.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/linear_slices.h"
#include "autograd/weight.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

using kernels::Activation;

enum class WeightLayout : uint8_t {
  out_in,  // [out, in]: Hugging Face's Linear
  in_out,  // [in, out]: GPT-2's Conv1D
};

struct LinearOptions {
  WeightLayout layout = WeightLayout::out_in;
  Activation activation = Activation::none;  // in the epilogue of the product
  // Weight and bias are parts of a layer, cut as these say; null: whole. Of inputs: without bias
  // and activation. Result and gradients are those of the whole layer.
  std::shared_ptr<const LinearSlices> slices{};
};

// x: [..., in] f64 | f32 | bf16 | f16, rows at one stride. weight: as `layout` says; bias: [out],
// may be absent; dtype of x. Result: [..., out], contiguous. Sums in f32 (f64), rounded once. With
// an activation the pre-activation is rounded to the dtype of x first, as between two ops.
// Deterministic.
Tensor linear(const Tensor& x, const Weight& weight, const Weight& bias = {},
              const LinearOptions& options = {});

}  // namespace zinc::autograd
