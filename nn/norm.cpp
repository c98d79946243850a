#include "nn/norm.h"

#include "autograd/ops/value.h"
#include "core/error.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

template <class Norm>
autograd::ResidualNorm norm_of(Norm& norm, const ResidualSum& sum) {
  if (sum.term.defined()) return norm.forward(sum.x, sum.term);
  return {.sum = sum.x, .normed = norm.forward(sum.x)};
}

}  // namespace

LayerNorm::LayerNorm(Module& parent, std::string name, const LayerNormOptions& options)
    : Module(parent, std::move(name)),
      eps_(options.eps),
      weight_(*this, "weight", Shape{options.features}, autograd::Initializer::ones()) {
  require(options.features > 0, path(), ": a norm needs a positive number of features, not ",
          options.features);
  if (options.bias) {
    bias_.emplace(*this, "bias", Shape{options.features}, autograd::Initializer::zeros());
  }
}

Tensor LayerNorm::forward(const Tensor& x) {
  return autograd::layernorm(x, own_weight(tensor_ranks(), weight_),
                             own_weight(tensor_ranks(), bias_ ? &*bias_ : nullptr), eps_);
}

autograd::ResidualNorm LayerNorm::forward(const Tensor& x, const Tensor& residual) {
  return autograd::residual_layernorm(x, residual, own_weight(tensor_ranks(), weight_),
                                      own_weight(tensor_ranks(), bias_ ? &*bias_ : nullptr), eps_);
}

autograd::ResidualNorm LayerNorm::forward(const ResidualSum& sum) { return norm_of(*this, sum); }

RMSNorm::RMSNorm(Module& parent, std::string name, const RMSNormOptions& options)
    : Module(parent, std::move(name)),
      eps_(options.eps),
      of_slice_(options.of_slice),
      weight_(*this, "weight", Shape{options.features}, autograd::Initializer::ones()) {
  require(options.features > 0, path(), ": a norm needs a positive number of features, not ",
          options.features);
}

autograd::Weight RMSNorm::gamma() {
  if (!of_slice_ || tensor_ranks() == nullptr) return own_weight(tensor_ranks(), weight_);
  return tensor_ranks()->spread(autograd::value(weight_));
}

Tensor RMSNorm::forward(const Tensor& x) { return autograd::rmsnorm(x, gamma(), eps_); }

autograd::ResidualNorm RMSNorm::forward(const Tensor& x, const Tensor& residual) {
  return autograd::residual_rmsnorm(x, residual, gamma(), eps_);
}

autograd::ResidualNorm RMSNorm::forward(const ResidualSum& sum) { return norm_of(*this, sum); }

}  // namespace zinc::nn
