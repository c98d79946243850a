// autograd/functions/products.h: contractions and convolutions as matrix products.
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// Einstein's sum of two tensors: einsum("bqhd,bkhd->bhqk", q, k). A letter names a dimension. A
// letter of both tensors and the result is a batch dimension; a letter of both tensors alone is
// contracted; a letter of one tensor that the result lacks is summed. One batched product, with
// copies where the order of dimensions needs them. Floats of one dtype; no letter twice in one
// tensor. Sums in f32 (f64).
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b);

struct Conv1dOptions {
  int64_t padding = 0;  // zeros at both ends
  int64_t stride = 1;
  int64_t dilation = 1;  // elements from one tap to the next
};
// y[b, o, t] = bias[o] + sum over c, k of weight[o, c, k] x[b, c, t stride + k dilation - padding]
// x: [B, C, T] float; weight: [O, C, K], or [C, 1, K]: depthwise, each channel by itself; bias:
// [O], may be absent. Result: [B, O, T'], contiguous, T' = (T + 2 padding - dilation (K - 1) - 1) /
// stride
// + 1 >= 1. One product over K copies of x, or K element-wise ones (depthwise): for small K.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

}  // namespace zinc::autograd
