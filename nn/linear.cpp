#include "nn/linear.h"

#include <cmath>

#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "core/error.h"
#include "nn/lora.h"

namespace zinc::nn {
namespace {

LinearOptions checked(const LinearOptions& options, const std::string& path) {
  require(options.in > 0 && options.out > 0, path, ": a linear layer needs positive sizes, not ",
          options.in, " -> ", options.out);
  return options;
}

autograd::Initializer default_initializer(int64_t in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return autograd::Initializer::uniform(-bound, bound);
}

Shape weight_shape(const LinearOptions& options) {
  return options.layout == autograd::WeightLayout::out_in ? Shape{options.out, options.in}
                                                          : Shape{options.in, options.out};
}

}  // namespace

Linear::Linear(Module& parent, std::string name, const LinearOptions& options)
    : Module(parent, std::move(name)),
      options_(checked(options, path())),
      weight_(*this, "weight", weight_shape(options),
              options.initializer.value_or(default_initializer(options.in))) {
  if (options.bias) {
    bias_.emplace(
        *this, "bias", Shape{options.out},
        options.initializer ? autograd::Initializer::zeros() : default_initializer(options.in));
  }
}

Linear::~Linear() = default;

Tensor Linear::forward(const Tensor& x) {
  if (adapter_ != nullptr) return adapter_->forward(x);
  return autograd::linear(x, weight_, bias(),
                          {.layout = options_.layout, .activation = options_.activation});
}

Tensor Linear::cross_entropy(const Tensor& x, const Tensor& labels) {
  if (adapter_ != nullptr) return autograd::cross_entropy(adapter_->forward(x), labels);
  require(options_.layout == autograd::WeightLayout::out_in &&
              options_.activation == autograd::Activation::none,
          path(), ": cross_entropy() is of a layer [out, in] without an activation");
  return autograd::linear_cross_entropy(x, weight_, labels, bias());
}

Parameter& Linear::weight() {
  require(adapter_ == nullptr, path(),
          ": has an adapter, and its weight is not the whole layer; call forward() or "
          "cross_entropy()");
  return weight_;
}

}  // namespace zinc::nn
