// zero/resident_values.h: the first values of a model that an engine takes over.
#pragma once

#include "nn/module.h"

namespace zinc::zero {

// A caller's source first; then values that the model's parameters hold already (loaded before the
// engine was made); then their initialisers.
class ResidentValues : public nn::WeightSource {
 public:
  ResidentValues(nn::Module& model, const nn::WeightSource* source, uint64_t seed);
  bool contains(const autograd::Parameter&) const override { return true; }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;
  void drop_resident() { resident_.clear(); }

 private:
  const nn::WeightSource* source_;
  nn::InitializerSource initializer_;
  nn::StateDict resident_;
};

}  // namespace zinc::zero
