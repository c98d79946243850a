#include "autograd/weight.h"

namespace zinc::autograd {

WeightValue Weight::acquire() const {
  if (parameter_ != nullptr) return WeightValue(parameter_->source().acquire(*parameter_));
  return tensor_.defined() ? WeightValue(tensor_) : WeightValue();
}

}  // namespace zinc::autograd
