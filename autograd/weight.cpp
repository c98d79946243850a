#include "autograd/weight.h"

#include "core/error.h"

namespace zinc::autograd {

WeightValue Weight::acquire() const {
  if (parameter_ != nullptr) return WeightValue(parameter_->source().acquire(*parameter_));
  return tensor_.defined() ? WeightValue(tensor_) : WeightValue();
}

std::string to_string(const Weight& weight) {
  const std::string shape = str("a weight of shape ", weight.shape());
  return weight.parameter() == nullptr ? shape : str(shape, " (", weight.parameter()->name(), ")");
}

}  // namespace zinc::autograd
