#include "nn/linear.h"

#include <cmath>

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

}  // namespace zinc::nn
