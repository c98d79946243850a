#include "train/export_checkpoint.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "hub/adapter.h"
#include "hub/merged_weights.h"
#include "hub/model.h"
#include "hub/model_folder.h"
#include "nn/lora.h"
#include "train/weights_for_use.h"
#include "zero/update/training_state.h"

namespace zinc::train {
namespace {

// config.json as it was saved.
files::json::Value config_of(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.text_of("config.json");
  if (!text) {
    throw DataError(str(checkpoint.path(),
                        ": there is no config.json in it: its model is not "
                        "known"));
  }
  return files::json::parse(*text, checkpoint.path() + "/config.json");
}

std::string text_with_dtype(const files::json::Value& config, DType dtype) {
  files::json::Object changed = config.as_object();
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (changed.find(key) != nullptr) changed.set(key, hub::torch_name(dtype));
  }
  return files::json::write(files::json::Value(changed), 2);
}

// The adapter's config of a run that trains adapters; absent for any other run.
std::optional<hub::AdapterConfig> adapter_of(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.text_of(hub::kAdapterConfigFile);
  if (text) {
    return hub::parse_adapter_config(
        files::json::parse(*text, str(checkpoint.path(), '/', hub::kAdapterConfigFile)));
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (nn::is_lora_parameter(name)) {
      throw DataError(str(checkpoint.path(), ": is of a run that trains adapters (", name,
                          "), and has no ", hub::kAdapterConfigFile,
                          ", which says how; go on with the run (--resume), which saves one"));
    }
  }
  return std::nullopt;
}

class CheckpointWeights : public nn::WeightSource {
 public:
  explicit CheckpointWeights(const WeightsForUse& weights) : weights_(weights) {}
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return weights_.checkpoint().shape_of(parameter.name(), zero::kWeightsKind);
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override {
    weights_.read(parameter.name(), begin, out);
  }

 private:
  const WeightsForUse& weights_;
};

void export_adapter(const WeightsForUse& weights, const hub::AdapterConfig& adapter,
                    nn::Model& model, const hub::NameMap& names, const std::string& folder) {
  hub::AdapterFolderWriter writer(folder, adapter, model, names,
                                  {.tokenizer_folder = weights.checkpoint().path()});
  std::vector<float> room(static_cast<size_t>(kBlockNumel));
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->requires_grad()) continue;
    for (int64_t begin = 0; begin < parameter->numel(); begin += kBlockNumel) {
      const int64_t count = std::min(kBlockNumel, parameter->numel() - begin);
      const View values(room.data(), DType::f32, Shape{count}, kCpu);
      weights.read(name, begin, values);
      writer.write(name, begin, values);
    }
  }
  writer.commit();
}

}  // namespace

void export_weights(const Checkpoint& checkpoint, const std::string& folder,
                    const ExportOptions& options) {
  const WeightsForUse for_use(checkpoint);
  checkpoint.verify_texts();
  const files::json::Value config = config_of(checkpoint);
  const std::optional<hub::AdapterConfig> adapter = adapter_of(checkpoint);
  if (options.merge_lora && !adapter) {
    throw ConfigError(
        str(checkpoint.path(), ": is of a run without adapters: leave --merge-lora out"));
  }
  const DType to = options.dtype ? *options.dtype : hub::dtype_of_config(config);
  const hub::ModelFolderOptions writing{.max_shard_bytes = options.max_shard_bytes,
                                        .tokenizer_folder = checkpoint.path(),
                                        .names = hub::name_map_of(config)};
  if (!adapter) {
    std::vector<files::TensorSpec> specs;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      specs.push_back({.name = name, .dtype = to, .shape = tensor.shape});
    }
    hub::write_model_folder(folder, text_with_dtype(config, to), specs, writing,
                            [&](std::string_view name, int64_t begin, View values) {
                              for_use.read(name, begin, values);
                            });
    return;
  }
  const hub::ModelConfig model_config = hub::parse_model_config(config);
  const std::unique_ptr<nn::Model> model = hub::make_model(model_config);
  nn::add_lora(*model, adapter->lora, nn::NamesNothing::ignored);
  const CheckpointWeights weights(for_use);
  nn::require_fit(weights, *model);
  if (options.merge_lora) {
    hub::write_merged(folder, text_with_dtype(config, to), to,
                      hub::ties_word_embeddings(model_config), *model, weights, writing);
    return;
  }
  if (options.dtype && to != DType::f32) {
    throw ConfigError("an adapter's weights are saved in f32: --dtype goes with --merge-lora");
  }
  export_adapter(for_use, *adapter, *model, writing.names, folder);
}

}  // namespace zinc::train
