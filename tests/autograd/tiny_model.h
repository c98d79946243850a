// tests/autograd/tiny_model.h: a small GPT made of autograd's fused ops, for tests of the whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace zinc::testing {

struct TinyModelOptions {
  DType dtype = DType::f32;
  bool recompute_blocks = false;
  bool recompute_inner = false;  // the MLP again inside the block
  double dropout = 0.2;
  autograd::ParameterSource* source = nullptr;
  autograd::HeadGradient head = autograd::HeadGradient::in_forward;
};

// Two blocks, 4 heads, B = 2, T = 6, C = 24, V = 11; the head is tied to the token table.
class TinyModel {
 public:
  explicit TinyModel(const TinyModelOptions& options);
  Tensor loss();  // summed, over fixed tokens
  std::vector<autograd::Parameter*> parameters();

 private:
  struct Block;
  Tensor run_block(const Block& block, const Tensor& x) const;
  Tensor run_mlp(const Block& block, const Tensor& x) const;
  autograd::Parameter& add(const std::string& name, const Shape& shape,
                           const autograd::Initializer& initializer);

  TinyModelOptions options_;
  std::vector<std::unique_ptr<autograd::Parameter>> parameters_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace zinc::testing
