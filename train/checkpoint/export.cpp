#include "train/checkpoint/export.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/lora.h"
#include "train/hub/model_folder.h"
#include "train/json/parser.h"
#include "train/json/writer.h"
#include "zero/training_state.h"

namespace zinc::train {
namespace {

// config.json as it was saved, of another dtype.
json::Value config_of(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.text_of("config.json");
  if (!text) {
    throw DataError(concat(checkpoint.path(),
                           ": there is no config.json in it: its model is not "
                           "known"));
  }
  return json::parse(*text, checkpoint.path() + "/config.json");
}

DType dtype_of(const json::Value& config) {
  const json::Value& name = config.at("torch_dtype");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    if (name.is_string(torch_name(dtype))) return dtype;
  }
  name.fail("expected float32, bfloat16 or float16");
}

}  // namespace

void export_weights(const Checkpoint& checkpoint, const std::string& folder,
                    std::optional<DType> dtype, int64_t max_shard_bytes) {
  json::Value config = config_of(checkpoint);
  const DType to = dtype ? *dtype : dtype_of(config);
  json::Object changed = config.as_object();
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (changed.find(key) != nullptr) changed.set(key, torch_name(to));
  }
  const std::string kind(zero::kWeightsKind);
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (nn::is_lora_parameter(name)) {
      throw ConfigError(concat(checkpoint.path(), ": is of a run that trains adapters (", name,
                               "), and not a model's weights; the run saves them as an adapter: "
                               "--export-every, and final/ at its end"));
    }
    specs.push_back({.name = name, .dtype = to, .shape = tensor.shape});
  }
  ModelFolderWriter writer(folder, json::write(json::Value(changed), 2), specs,
                           {.max_shard_bytes = max_shard_bytes,
                            .tokenizer_folder = checkpoint.path(),
                            .names = name_map_of(config)});
  std::vector<std::byte> room(static_cast<size_t>(kBlockNumel * size_of(DType::f64)));
  for (const TensorSpec& spec : specs) {
    for (int64_t begin = 0; begin < spec.shape.numel(); begin += kBlockNumel) {
      const int64_t count = std::min(kBlockNumel, spec.shape.numel() - begin);
      const View values(room.data(), to == DType::f64 ? DType::f64 : DType::f32, Shape{count},
                        kCpu);
      checkpoint.read(spec.name, kind, begin, values);
      writer.write(spec.name, begin, values);
    }
  }
  writer.commit();
}

}  // namespace zinc::train
