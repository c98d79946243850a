// nn/norm.h: normalisation over the last dimension.
#pragma once

#include <optional>

#include "autograd/ops/norm.h"
#include "nn/linear.h"

namespace zinc::nn {

struct LayerNormOptions {
  int64_t features = 0;
  double eps = 1e-5;
  bool bias = true;
};

// Ba et al. 2016. Parameters "weight" [features] (ones) and "bias" [features] (zeros).
class LayerNorm : public Module {
 public:
  LayerNorm(Module& parent, std::string name, const LayerNormOptions& options);
  Tensor forward(const Tensor& x);  // [..., features] -> the same
  // The norm of x + residual, and that sum, in one pass.
  autograd::ResidualNorm forward(const Tensor& x, const Tensor& residual);
  autograd::ResidualNorm forward(const ResidualSum& sum);

 private:
  double eps_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

struct RMSNormOptions {
  int64_t features = 0;
  double eps = 1e-5;
  bool of_slice = false;  // each tensor rank has other rows: gradients are summed over ranks
};

// Zhang and Sennrich 2019. Parameter "weight" [features] (ones).
class RMSNorm : public Module {
 public:
  RMSNorm(Module& parent, std::string name, const RMSNormOptions& options);
  Tensor forward(const Tensor& x);
  autograd::ResidualNorm forward(const Tensor& x, const Tensor& residual);
  autograd::ResidualNorm forward(const ResidualSum& sum);

 private:
  autograd::Weight gamma();

  double eps_;
  bool of_slice_;
  Parameter weight_;
};

}  // namespace zinc::nn
