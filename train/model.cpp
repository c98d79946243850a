#include "train/model.h"

#include <cerrno>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "train/hub/model_folder.h"
#include "zero/gather_values.h"

namespace zinc::train {
namespace {

std::string_view embedding_name(const ModelConfig& config) {
  return std::holds_alternative<nn::Gpt2Config>(config) ? "transformer.wte.weight"
                                                        : "model.embed_tokens.weight";
}

}  // namespace

std::unique_ptr<nn::Model> make_model(const ModelConfig& config) {
  if (const auto* gpt2 = std::get_if<nn::Gpt2Config>(&config)) {
    return std::make_unique<nn::Gpt2>(*gpt2);
  }
  return std::make_unique<nn::Llama>(std::get<nn::LlamaConfig>(config));
}

FolderWeights::FolderWeights(const std::string& folder, nn::Model& model, const ModelConfig& config)
    : reader_(SafetensorsFolder::open(folder)) {
  std::vector<WeightSpec> wanted;
  for (const auto& [name, parameter] : model.named_parameters()) {
    wanted.push_back({.name = name, .shape = parameter->shape()});
  }
  reader_.require_match(wanted);
  if (ties_word_embeddings(config)) reader_.require_tied_head(embedding_name(config));
}

bool FolderWeights::contains(const autograd::Parameter& parameter) const {
  return reader_.contains(parameter.name());
}

void FolderWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  reader_.read(parameter.name(), parameter.shape(), begin, out);
}

void gather_model(zero::Engine& engine,
                  const std::function<void(const std::string& name, const Tensor& values)>& take) {
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const Tensor values = engine.parameter(name);
    if (take) take(name, values);
  }
}

void save_model(zero::Engine& engine, const ModelConfigFile& config, const std::string& folder,
                bool replace) {
  const DType dtype = engine.config().precision.dtype;
  const bool writes = engine.world().is_main();
  std::vector<TensorSpec> specs;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    specs.push_back({.name = name, .dtype = dtype, .shape = parameter->shape()});
  }
  // Every rank takes part in the gathering, whatever becomes of rank 0's file.
  std::exception_ptr failure;
  std::optional<ModelFolderWriter> writer;
  const auto attempt = [&](const auto& work) {
    if (!writes || failure != nullptr) return;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  attempt([&] {
    writer.emplace(folder, config.config, dtype, specs,
                   ModelFolderOptions{.replace = replace, .original_config = config.original});
  });
  gather_model(engine, [&](const std::string& name, const Tensor& values) {
    attempt([&] { writer->write(name, 0, values.view().reshape(Shape{values.numel()})); });
  });
  attempt([&] { writer->commit(); });
  const bool failed = zero::any_rank(engine.world(), failure != nullptr);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (failed) throw IoError("write the weights to", folder, -1, EIO, "rank 0 says why");
}

}  // namespace zinc::train
