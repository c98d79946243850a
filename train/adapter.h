// train/adapter.h: LoRA adapters as folders that Hugging Face's peft reads and writes:
// adapter_config.json and adapter_model.safetensors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/lora.h"
#include "nn/module.h"
#include "train/hub/weight_reader.h"
#include "train/model.h"
#include "zero/engine.h"

namespace zinc::train {

struct AdapterConfig {
  nn::LoraOptions lora{};
  std::string base_model{};  // base_model_name_or_path: what it was trained on; for people
};

// DataError with its place for an adapter that is no LoRA, and for kinds of LoRA that change the
// mathematics and that zinc does not have, by name.
AdapterConfig read_adapter_config(const std::string& folder);

// The trained parameters of a model with adapters, f32. Collective; the folder appears at once and
// whole. NumericsError by name for weights that are not finite, unless options.allow_damaged.
void save_adapter(zero::Engine& engine, const AdapterConfig& config, const std::string& folder,
                  const SaveOptions& options = {});

// Hands out what save_adapter() writes, by name in the model, on every rank; `take` may be empty.
// Collective.
void visit_adapter(
    zero::Engine& engine,
    const std::function<void(const std::string& name, const std::vector<float>& values)>& take);

// First values of a model with adapters: the base's own, and the adapter's, or their initialisers.
class AdaptedWeights : public nn::WeightSource {
 public:
  // `base`: null: the parameters' initialisers. `folder`: of an adapter; empty: none yet. Both
  // outlive this. DataError that lists what the adapter lacks, has in addition or in another shape.
  AdaptedWeights(nn::Module& model, const nn::WeightSource* base, const std::string& folder);
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  const nn::WeightSource* base_;
  nn::InitializerSource initial_;
  std::optional<WeightReader> adapter_;
};

}  // namespace zinc::train
