// nn/first_values.h: the values that a model begins with when its parameters get another source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "nn/module.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// Takes the values out of a model's parameters. A parameter's first values come from the first of
// these that has any: the caller's source; the values that the parameter held (loaded before); its
// initialiser.
class FirstValues : public WeightSource {
 public:
  // `source`: may be null; must outlive this. Throws as require_fit(), and InvalidArgument for a
  // parameter that holds a slice.
  FirstValues(Module& model, const WeightSource* source, uint64_t seed);
  // Unless drop_held() was called, the parameters get back the values that they held.
  ~FirstValues() override;
  FirstValues(const FirstValues&) = delete;
  FirstValues& operator=(const FirstValues&) = delete;

  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.whole_shape();
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;
  // Frees the values that the parameters held.
  void drop_held() { held_.clear(); }

 private:
  struct Held {
    Parameter* parameter;
    Tensor values;     // undefined: the values are lost
    std::string loss;  // Parameter::loss_of_data()
  };

  const WeightSource* source_;
  InitializerSource initializer_;
  std::map<std::string, Held> held_;
};

}  // namespace zinc::nn
