// zero/values/resident_values.h: the first values of a model that an engine takes over.
#pragma once

#include <map>
#include <string>

#include "nn/module.h"

namespace zinc::zero {

// A parameter's first value comes from the first of these that has one: the caller's source; the
// values that the model's parameters hold already (loaded before the engine was made); the
// parameters' initialisers.
class ResidentValues : public nn::WeightSource {
 public:
  ResidentValues(nn::Module& model, const nn::WeightSource* source, uint64_t seed);
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.whole_shape();
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;
  // If the engine could not be made, the parameters get back what they held.
  ~ResidentValues() override;
  ResidentValues(const ResidentValues&) = delete;
  ResidentValues& operator=(const ResidentValues&) = delete;
  void drop_resident();

 private:
  struct Held {
    nn::Parameter* parameter;
    Tensor values;     // undefined: the values are lost
    std::string loss;  // Parameter::loss_of_data()
  };

  const nn::WeightSource* source_;
  nn::InitializerSource initializer_;
  std::map<std::string, Held> held_;
};

}  // namespace zinc::zero
