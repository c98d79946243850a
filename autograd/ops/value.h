// autograd/ops/value.h: the values of a weight as a Tensor, for ops that take Tensors only.
#pragma once

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// A copy of a Parameter's values, which does not pin the parameter; a Tensor as it is. The
// gradient reaches the weight.
Tensor value(const Weight& weight);

}  // namespace zinc::autograd
