// nn/tensor_ranks.h: ranks that hold a layer together, a slice each (Shoeybi et al. 2019,
// "Megatron-LM").
//
// A layer says how it is sliced (LinearOptions::split, EmbeddingOptions::sliced); a model that is
// shared over ranks (Module::share_over) then holds its slices alone. What goes into such a layer,
// and what comes out of one with Split::rows, is the same on every rank. So a module of columns,
// an element-wise function and rows needs to know nothing:
//
//   zinc::nn::Linear up{*this, "up", {.in = C, .out = 4 * C, .split = zinc::nn::Split::columns}};
//   zinc::nn::Linear down{*this, "down", {.in = 4 * C, .out = C, .split = zinc::nn::Split::rows}};
//   ...  down.forward(gelu(up.forward(x)))
//
// One that counts features between the two, as heads, divides them by Module::num_tensor_ranks().
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::nn {

class TensorRanks {
 public:
  virtual ~TensorRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // x, the same on every rank, for slices that each give a part of its gradient: backward sums the
  // parts.
  virtual Tensor spread(const Tensor& x) = 0;
  // The sum of every rank's part, on every rank; backward leaves the gradient as it is. Parts are
  // added in f32 over a fixed tree of ranks.
  virtual Tensor sum(const Tensor& part) = 0;
  // Every rank's part of the last dimension, side by side: [..., whole]. Without a gradient. Parts
  // are those of TensorSlice::of().
  virtual Tensor join(const Tensor& part, int64_t whole) = 0;
  // autograd::ClassShare::combine.
  virtual void combine_losses(const Tensor& lse, const Tensor& loss, const Tensor& labels) = 0;
};

}  // namespace zinc::nn
