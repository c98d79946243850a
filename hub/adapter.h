// hub/adapter.h: LoRA adapters as folders that Hugging Face's peft reads and writes:
// adapter_config.json and adapter_model.safetensors (or, of old, adapter_model.bin).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/atomic_file.h"
#include "files/json/value.h"
#include "files/safetensors/writer.h"
#include "hub/model.h"
#include "hub/name_map.h"
#include "hub/weight_reader.h"
#include "nn/lora.h"
#include "nn/module.h"

namespace zinc::hub {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";

struct AdapterConfig {
  nn::LoraOptions lora{};
  // The key "base_model_name_or_path": the model that the adapter was trained on; for people.
  std::string base_model{};
};

// The places of adapters' elements in their file, for a model with the name map `names`: B has the
// rows of its layer's weight. Throws ConfigError for a trained parameter whose layer the files hold
// in parts, or as a part: peft's adapter belongs to another layer.
NameMap adapter_names(const NameMap& names, nn::Module& model);

// Throws a DataError, with its place, for an adapter that is no LoRA, and for kinds of LoRA that
// compute something that zinc does not have, by name.
AdapterConfig read_adapter_config(const std::string& folder);

// The same for the contents of adapter_config.json, and the inverse: its text. `model`: with or
// without the adapters.
AdapterConfig parse_adapter_config(const files::json::Value& root);
std::string adapter_config_json(const AdapterConfig& config, nn::Module& model);

// Writes an adapter folder. The folder appears whole, at commit(). Without commit() nothing is
// left.
class AdapterFolderWriter {
 public:
  // `model`: with adapters; its trained parameters are to be written. `names`: the base's name map.
  AdapterFolderWriter(const std::string& folder, const AdapterConfig& config, nn::Module& model,
                      const NameMap& names, const SaveOptions& options = {});
  // Elements [begin, begin + values.numel()) of a trained parameter, by its name in the model.
  // values: contiguous host memory of any float dtype.
  void write(const std::string& name, int64_t begin, ConstView values);
  void commit();

 private:
  files::AtomicFolder target_;
  bool replace_;
  std::map<std::string, std::vector<TensorPart>, std::less<>> parts_;  // by parameter
  std::optional<files::SafetensorsWriter> weights_;
};

// First values of a model with adapters. The base gives its own values; the adapter gives its
// values, or their initialisers do.
class AdaptedWeights : public nn::WeightSource {
 public:
  // `base`: null for the parameters' initialisers. `folder`: the adapter's; empty if there is none
  // yet. `model` and `base` must outlive this. `names`: the base's name map. Throws a DataError
  // that lists what the adapter lacks, has in addition, or has in another shape.
  AdaptedWeights(nn::Module& model, const nn::WeightSource* base, const NameMap& names,
                 const std::string& folder);
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  bool in_adapter(const autograd::Parameter& parameter) const;

  const nn::WeightSource* base_;
  nn::InitializerSource initial_;
  std::map<const autograd::Parameter*, nn::LoraTerms> decomposed_;  // by magnitude
  std::optional<WeightReader> adapter_;
};

}  // namespace zinc::hub
