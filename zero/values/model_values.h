// zero/values/model_values.h: what a model's parameters hold before an engine, and after it.
//
//   after an engine   the parameters hold
//   stages 0 to 2     the whole weights, in the engine's memory; nothing is copied
//   stage 3           nothing, but after Engine::release_to_model(): collective, room for all
//
// A parameter whose values are gone throws when it is used, with its name and the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "nn/module.h"
#include "tensor/tensor.h"
#include "zero/update/stores.h"

namespace zinc::zero {

// The first values of a model. A parameter's comes from the first of these that has one: the
// caller's source; the values that the model's parameters hold already (loaded before the engine
// was made); the parameters' initialisers.
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

// Call when the engine ends. The parameters get the resident source of values back.
// `between_updates`: the weights are not part way through an update. An update beside the next
// forward pass is ended first, which is collective; not if an exception ends the engine.
void leave_values(nn::Module& model, Stores& stores, bool between_updates) noexcept;

// Gives the parameters their whole values, by `read`, one after the other, and takes them from the
// engine. Collective if `read` is. If `read` throws, nothing has changed.
void release_values(nn::Module& model, const std::function<Tensor(const std::string&)>& read);

}  // namespace zinc::zero
