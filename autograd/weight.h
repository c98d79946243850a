// autograd/weight.h: an operand that is a Tensor or a Parameter.
//
// Ops that read weights take them as `const Weight&`, so that both of these work:
//   linear(x, model.fc.weight, model.fc.bias)     // Parameters: gathered while the op is issued
//   linear(x, w, b)                               // plain Tensors
// A Weight refers to its Parameter; it is an argument, not something to keep.
#pragma once

#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// The values of a weight, valid for work issued to the compute stream while this lives. Move-only.
class WeightValue {
 public:
  WeightValue() = default;  // an absent weight: an empty view
  explicit WeightValue(Tensor tensor) : tensor_(std::move(tensor)), view_(tensor_.view()) {}
  explicit WeightValue(ParameterGuard guard) : guard_(std::move(guard)), view_(guard_.view()) {}
  const ConstView& view() const { return view_; }

 private:
  Tensor tensor_;
  ParameterGuard guard_;
  ConstView view_;
};

// The values of weights [n_i, ...] as one weight [sum of n_i, ...]: in place where they lie one
// behind the other, else a copy in workspace. Valid as long as the parts. Move-only.
//
// Note [Weights side by side]
// A copy costs a pass over the weights, so weights should lie one behind the other. Parameters of a
// shard group that are declared one behind the other do, in one segment and with whole chunks
// (zero/layout/shard_group.h), on every stage and tier. Resident parameters are moved together
// once: Parameter::join_data(). The place changes no bit.
class JoinedValue {
 public:
  // At least one, of one dtype; all absent: an empty view.
  explicit JoinedValue(std::vector<WeightValue> parts);
  const ConstView& view() const { return view_; }

 private:
  std::vector<WeightValue> parts_;
  Tensor copy_;
  ConstView view_;
};

class Weight {
 public:
  Weight() = default;                                       // absent, as in "no bias"
  Weight(const Tensor& tensor) : tensor_(tensor) {}         // NOLINT; undefined: absent
  Weight(Parameter& parameter) : parameter_(&parameter) {}  // NOLINT
  Weight(Parameter* parameter) : parameter_(parameter) {}   // NOLINT; null: absent

  explicit operator bool() const { return parameter_ != nullptr || tensor_.defined(); }
  // The following throw InvalidArgument where the weight is absent.
  const Shape& shape() const {
    return parameter_ != nullptr ? parameter_->shape() : tensor_.shape();
  }
  DType dtype() const { return parameter_ != nullptr ? parameter_->dtype() : tensor_.dtype(); }
  int rank() const { return shape().rank(); }
  int64_t dim(int i) const { return shape().dim(i); }

  bool requires_grad() const {
    return parameter_ != nullptr ? parameter_->requires_grad() : tensor_.requires_grad();
  }
  Parameter* parameter() const { return parameter_; }  // null for a Tensor
  const Tensor& tensor() const { return tensor_; }     // undefined for a Parameter
  WeightValue acquire() const;                         // an empty value where absent

 private:
  Parameter* parameter_ = nullptr;
  Tensor tensor_;
};

// For messages: "a weight of shape [3, 5]", "a weight of shape [3, 5] (h.0.mlp.c_fc.weight)".
std::string to_string(const Weight& weight);

}  // namespace zinc::autograd
