// hub/weights.h: reads and writes the weights of a client's own model as safetensors files.
//
//   zinc::save_weights(engine, "out/final");      // train/weights/save_model.h: model.safetensors
//   const zinc::hub::SafetensorsWeights weights("out/final", model);
//   zinc::Engine again = zinc::initialize(model, config, world, {.weights = &weights});
//
// For models of Hugging Face's families: hub/model.h.
#pragma once

#include <optional>
#include <string>

#include "hub/model.h"
#include "hub/weight_reader.h"
#include "nn/module.h"

namespace zinc::hub {

// First values of a module's parameters, by name. Read from a .safetensors file, or from a folder
// with one such file or with several and their index.
class SafetensorsWeights : public nn::WeightSource {
 public:
  // Throws a DataError that lists missing and unexpected tensors and those of another shape. strict
  // = false: a parameter that the files lack, or have in another shape, is initialised, and other
  // tensors are ignored.
  SafetensorsWeights(const std::string& path, nn::Module& module, bool strict = true);
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  bool fits(const autograd::Parameter& parameter) const;

  WeightReader reader_;
  bool strict_;
  nn::InitializerSource initial_;
};

// Writes the values that the module itself holds, each in its own dtype, as
// <folder>/model.safetensors.
void save_weights(nn::Module& module, const std::string& folder, const SaveOptions& options = {});

}  // namespace zinc::hub
