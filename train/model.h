// train/model.h: models from configurations, their weights from and to Hugging Face folders.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nn/model.h"
#include "train/hub/model_config.h"
#include "train/hub/weight_reader.h"
#include "zero/engine.h"

namespace zinc::train {

// Declares the model; no weights exist yet.
std::unique_ptr<nn::Model> make_model(const ModelConfig& config);

// A Hugging Face folder as the first values of a model.
class FolderWeights : public nn::WeightSource {
 public:
  // Opens the folder and compares it with the model. DataError that lists everything that is
  // missing, unexpected or of another shape.
  FolderWeights(const std::string& folder, nn::Model& model, const ModelConfig& config);
  bool contains(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  WeightReader reader_;
};

// Hands out every parameter of the model, in its order, on every rank: what the optimizer works on
// (zero::Engine::parameter). Collective. `take` may be empty.
void gather_model(zero::Engine& engine,
                  const std::function<void(const std::string& name, const Tensor& values)>& take);

// Writes the engine's weights, in the model's dtype, and config.json as a folder that transformers
// loads. Collective; rank 0 writes, and an error of rank 0 is thrown on every rank. `replace`: an
// existing folder of that name.
void save_model(zero::Engine& engine, const ModelConfigFile& config, const std::string& folder,
                bool replace);

}  // namespace zinc::train
