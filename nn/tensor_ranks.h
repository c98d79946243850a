// nn/tensor_ranks.h: ranks that each hold a slice of a layer (Shoeybi et al. 2019, "Megatron-LM").
//
// A layer says how it is sliced: LinearOptions::split, EmbeddingOptions::sliced. After
// Module::share_over() a rank holds its slices only. The input of a sliced layer is the same on
// every rank. So is the output of a layer with Split::rows. So a module of columns, an element-wise
// function and rows needs no change:
//
//   zinc::nn::Linear up{*this, "up", {.in = C, .out = 4 * C, .split = zinc::nn::Split::columns}};
//   zinc::nn::Linear down{*this, "down", {.in = 4 * C, .out = C, .split = zinc::nn::Split::rows}};
//   ...  down.forward(gelu(up.forward(x)))
//
// A module that counts features between the two, such as heads, divides them by
// Module::num_tensor_ranks().
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::nn {

class TensorRanks {
 public:
  virtual ~TensorRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns x, which is the same on every rank, as input for slices. In backward each slice gives a
  // part of x's gradient; the parts are summed over ranks.
  virtual Tensor spread(const Tensor& x) = 0;
  // The sum of the parts of all ranks, on every rank. Backward leaves the gradient as it is. Parts
  // are added in f32 over a fixed tree of ranks.
  virtual Tensor sum(const Tensor& part) = 0;
  // The parts of all ranks side by side in the last dimension: [..., whole], the same on every
  // rank. Backward takes this rank's part of the gradient, which is the same on every rank too;
  // where ranks use different columns, spread() the result. Parts are those of TensorSlice::of().
  virtual Tensor join(const Tensor& part, int64_t whole) = 0;
  // See autograd::ClassShare::combine.
  virtual void combine_losses(const Tensor& lse, const Tensor& loss, const Tensor& labels) = 0;
};

}  // namespace zinc::nn
