#include "train/convert_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/json/parser.h"
#include "hub/adapter.h"
#include "hub/llmc_file.h"
#include "hub/model.h"
#include "hub/name_map.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/state_file.h"
#include "train/run_position.h"
#include "train/weights_for_use.h"

namespace zinc::train {
namespace {

zero::TrainingState state_of(const files::DeepSpeedCounters& counters,
                             const ConvertOptions& options) {
  if (counters.skipped_steps > counters.global_steps) {
    throw DataError(str("this checkpoint has skipped ", counters.skipped_steps, " of ",
                        counters.global_steps, " steps, which cannot be"));
  }
  zero::TrainingState state;
  state.steps = counters.global_steps;
  state.applied = counters.global_steps - counters.skipped_steps;
  state.is_loss_scale_dynamic = counters.loss_scale != 1.0;
  state.loss_scale.scale = counters.loss_scale;
  state.loss_scale.steps = counters.global_steps;
  state.schedule.updates = state.applied;
  state.optimizer = options.optimizer;
  for (const files::StateKind kind : files::kStateKinds)
    state.kinds.emplace_back(files::name_of(kind));
  return state;
}

// A parameter of the model, and the parameter of DeepSpeed in which it lies.
struct ConvertedParameter {
  std::string name;
  Shape shape;
  std::vector<hub::TensorPart> parts;
  bool trained = true;
};

// DeepSpeed has the parameters of transformers' module, and so the names and layouts of a hub
// folder. Where they are not those of the model here, its family says which is which.
std::vector<ConvertedParameter> converted_parameters(const files::DeepSpeedCheckpoint& from,
                                                     const hub::ModelConfigFile* model) {
  std::vector<ConvertedParameter> result;
  const auto& theirs = from.parameters();
  const hub::NameMap names = model == nullptr ? hub::NameMap{} : hub::name_map(model->config);
  if (names.rows.empty()) {
    for (const auto& [name, shape, trained] : theirs) {
      result.push_back({name, shape, hub::tensor_parts({}, name, shape), trained});
    }
    return result;
  }
  const std::unique_ptr<nn::Model> made = hub::make_model(model->config);
  for (const auto& [name, parameter] : made->named_parameters()) {
    ConvertedParameter ours{name, parameter->shape(),
                            hub::tensor_parts(names, name, parameter->shape())};
    for (const hub::TensorPart& part : ours.parts) {
      const auto found =
          std::ranges::find(theirs, part.name(), &files::DeepSpeedCheckpoint::Parameter::name);
      if (found == theirs.end() || found->shape != part.shape()) {
        throw DataError(str(from.folder(), ": ", name, " of the model needs ", part.name(), " ",
                            part.shape(), ", which the checkpoint does not have",
                            found == theirs.end() ? "" : " in this shape"));
      }
      ours.trained = ours.trained && found->trained;
    }
    result.push_back(std::move(ours));
  }
  return result;
}

// All of one parameter, kind after kind.
void write_parameter(const files::DeepSpeedCheckpoint& from, const ConvertedParameter& parameter,
                     std::vector<float>& room, StateFileWriter& file) {
  const int64_t numel = parameter.shape.numel();
  for (const files::StateKind kind : files::kStateKinds) {
    if (kind != files::StateKind::weights && !parameter.trained) continue;
    for (int64_t begin = 0; begin < numel; begin += kBlockNumel) {
      const int64_t count = std::min(kBlockNumel, numel - begin);
      std::fill_n(room.begin(), count, 0.0F);
      const View values(room.data(), DType::f32, Shape{count}, kCpu);
      hub::read_parts(parameter.parts, begin, values,
                      [&](const hub::TensorPart& part, int64_t their_begin, View run) {
                        if (from.has(part.name(), kind))
                          from.read(part.name(), kind, their_begin, run);
                      });
      file.write({.name = parameter.name,
                  .kind = files::name_of(kind),
                  .part = {0, numel},
                  .begin = begin,
                  .values = values});
    }
  }
}

}  // namespace

std::string convert_deepspeed(const files::DeepSpeedCheckpoint& from, const std::string& folder,
                              const ConvertOptions& options) {
  Manifest manifest{.world = 1,
                    .seed = options.seed,
                    .state = state_of(from.counters(), options),
                    .client_state = {},
                    .files = {},
                    .indices = {}};
  const std::vector<ConvertedParameter> converted = converted_parameters(from, options.model);
  const int64_t samples = from.counters().global_samples;
  manifest.client_state = to_json(RunPosition{.loader = {.seed = options.seed, .samples = samples},
                                              .trainer = {.samples = samples},
                                              .fingerprints = {}});
  files::create_folders(folder);
  files::AtomicFolder made(str(folder, '/', checkpoint_name(manifest.state.steps)));
  std::vector<NamedShape> parameters;
  for (const auto& parameter : converted) {
    parameters.push_back({parameter.name, parameter.shape});
  }
  StateFileWriter file(made.path(), state_file_name(0, 1), parameters, manifest.state.kinds,
                       DType::f32);
  std::vector<float> room(static_cast<size_t>(kBlockNumel));
  for (const auto& parameter : converted) write_parameter(from, parameter, room, file);
  manifest.files.push_back(file.finish());
  manifest.indices.push_back(manifest.files.front().name);
  if (options.model != nullptr) {
    manifest.files.push_back(write_stored_file(
        made.path(), "config.json",
        hub::model_config_json(options.model->config, DType::f32, options.model->original)));
  }
  write_stored_file(made.path(), "manifest.json", to_json(manifest));
  made.commit(/*replace=*/false);
  return str(folder, '/', checkpoint_name(manifest.state.steps));
}

void export_llmc(const Checkpoint& checkpoint, const std::string& path, DType dtype) {
  const WeightsForUse weights(checkpoint);
  const std::optional<std::string> text = checkpoint.text_of("config.json");
  if (!text) {
    throw DataError(str(checkpoint.path(),
                        ": there is no config.json in it: its model is not "
                        "known"));
  }
  const hub::ModelConfig config =
      hub::parse_model_config(files::json::parse(*text, checkpoint.path() + "/config.json"));
  const auto* gpt2 = config.get_if<nn::Gpt2Config>();
  if (gpt2 == nullptr) throw ConfigError("llm.c's files hold GPT-2 alone");
  if (checkpoint.text_of(hub::kAdapterConfigFile)) {
    throw ConfigError(str(checkpoint.path(),
                          ": llm.c's files have no place for adapters; export with --merge-lora, "
                          "and begin a run from that folder (--init)"));
  }
  hub::write_llmc_file(path, *gpt2, dtype, [&](std::string_view name, int64_t begin, View out) {
    weights.read(name, begin, out);
  });
}

}  // namespace zinc::train
