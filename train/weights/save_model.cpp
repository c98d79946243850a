#include "train/weights/save_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "files/json/writer.h"
#include "hub/family.h"
#include "hub/model_folder.h"
#include "train/weights/finite_weights.h"

namespace zinc::train {
namespace {

// Every rank has checked that it wrote no element twice.
void require_complete(comm::World& world, const hub::ModelFolderWriter& writer,
                      const std::string& folder) {
  const auto mine = static_cast<double>(writer.num_written());
  double written = 0.0;
  for (const double part : comm::gather_values(world, {&mine, 1})) written += part;
  bug_check(static_cast<int64_t>(written) == writer.num_elements(), folder, ": all ranks wrote ",
            static_cast<int64_t>(written), " elements, the model has ", writer.num_elements());
}

void require_finite_values(const std::string& name, const std::vector<float>& values,
                           const std::string& folder) {
  if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) return;
  throw NumericsError(str(folder, ": not saved: ", name, " has values that are not finite"));
}

void save_weights(zero::Engine& engine, const std::string& config_json, const hub::NameMap& names,
                  const std::string& folder, const hub::SaveOptions& options) {
  comm::World& world = engine.world();
  const DType dtype = engine.config().precision.dtype;
  std::vector<files::TensorSpec> specs;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    specs.push_back({.name = name, .dtype = dtype, .shape = parameter->whole_shape()});
  }
  std::optional<hub::ModelFolderWriter> writer;
  const auto together = [&](const auto& work) { comm::together(world, "save the weights", work); };
  together([&] {
    if (!world.is_main()) return;
    writer.emplace(folder, config_json, specs,
                   hub::ModelFolderOptions{.replace = options.replace,
                                           .max_shard_bytes = options.max_shard_bytes,
                                           .tokenizer_folder = options.tokenizer_folder,
                                           .shared = true,
                                           .names = names});
  });
  const std::string path = comm::share_text(world, writer ? writer->path() : std::string());
  together([&] {
    if (!writer) {
      writer.emplace(hub::ModelFolderWriter::join(path, specs, options.max_shard_bytes, names));
    }
    engine.read_own(zero::Engine::Own::weights, [&](const zero::OwnPiece& piece) {
      if (!options.allow_damaged) require_finite(piece, folder);
      const auto write = [&](int64_t begin, const ConstView& values) {
        writer->write(piece.name, begin, values);
      };
      if (piece.slice == nullptr) return write(piece.begin, piece.values);
      piece.slice->for_each_run(piece.begin, piece.begin + piece.values.numel(),
                                [&](int64_t here, int64_t in_whole, int64_t count) {
                                  write(in_whole,
                                        piece.values.narrow(0, here - piece.begin, count));
                                });
    });
    writer->sync();
  });
  require_complete(world, *writer, folder);
  together([&] {
    if (world.is_main()) writer->commit();
  });
}

}  // namespace

std::string config_json(zero::Engine& engine, const hub::ModelConfigFile* config) {
  const DType dtype = engine.config().precision.dtype;
  if (config != nullptr) return hub::model_config_json(config->config, dtype, config->original);
  files::json::Writer json(2);
  json.begin_object();
  json.member("model_type", engine.model().model_type());
  json.member("dtype", hub::torch_name(dtype));
  json.member("torch_dtype", hub::torch_name(dtype));
  json.end_object();
  return json.take();
}

void save_model(zero::Engine& engine, const hub::ModelConfigFile& config, const std::string& folder,
                const hub::SaveOptions& options) {
  save_weights(engine, config_json(engine, &config), hub::name_map(config.config), folder, options);
}

void save_model(zero::Engine& engine, const std::string& folder, const hub::SaveOptions& options) {
  save_weights(engine, config_json(engine, nullptr), {}, folder, options);
}

void save_adapter(zero::Engine& engine, const hub::AdapterConfig& config, const hub::NameMap& names,
                  const std::string& folder, const hub::SaveOptions& options) {
  comm::World& world = engine.world();
  std::optional<hub::AdapterFolderWriter> writer;
  const auto together = [&](const auto& work) { comm::together(world, "save the adapter", work); };
  together([&] {
    if (world.is_main()) writer.emplace(folder, config, engine.model(), names, options);
  });
  visit_adapter(engine, [&](const std::string& name, const std::vector<float>& values) {
    together([&] {
      if (!options.allow_damaged) require_finite_values(name, values, folder);
      if (!world.is_main()) return;
      const auto count = static_cast<int64_t>(values.size());
      writer->write(name, 0, ConstView(values.data(), DType::f32, Shape{count}, kCpu));
    });
  });
  together([&] {
    if (world.is_main()) writer->commit();
  });
}

void visit_adapter(
    zero::Engine& engine,
    const std::function<void(const std::string& name, const std::vector<float>& values)>& take) {
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    if (!parameter->requires_grad()) continue;
    const std::vector<float> values = engine.evaluated_parameter(name).to_vector<float>();
    if (take) take(name, values);
  }
}

}  // namespace zinc::train
