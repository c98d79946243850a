#include "hub/model.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/convert.h"
#include "core/error.h"
#include "core/glob.h"
#include "hub/family.h"

namespace zinc::hub {
std::unique_ptr<nn::Model> make_model(const ModelConfig& config) {
  return config.family().make(config.value());
}

std::unique_ptr<nn::Model> make_model(const ModelConfigFile& config) {
  std::unique_ptr<nn::Model> model = make_model(config.config);
  apply_tuning(*model, config.tuning);
  return model;
}

FolderWeights::FolderWeights(const std::string& folder, nn::Model& model, const ModelConfig& config)
    : FolderWeights(folder, model, ModelConfigFile{.config = config}) {}

FolderWeights::FolderWeights(const std::string& folder, nn::Model& model,
                             const ModelConfigFile& config)
    : reader_(WeightFolder::open(folder), name_map(config.config)),
      initial_(config.new_parameters.empty() ? 0 : Context::current().random().seed()) {
  std::vector<WeightSpec> wanted;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Shape whole = parameter->whole_shape();
    const int64_t rows = config.stored_vocabulary;
    if (rows > 0 && whole.rank() > 0 && whole.dim(0) == vocabulary_size(config.config)) {
      Shape stored = whole;
      stored.set(0, rows);
      if (reader_.shape_of(name, stored) == stored) {
        wanted.push_back({.name = name, .shape = stored});
        grown_.emplace(name, Grown{.stored = stored});
        continue;
      }
    }
    // A loop: clang 14, which the preset fuzz builds with, captures no structured bindings.
    bool may_be_new = false;
    for (const auto& glob : config.new_parameters) {
      may_be_new = may_be_new || matches_glob(glob, name);
    }
    if (may_be_new && !reader_.shape_of(name, whole)) {
      initialised_.push_back(name);
    } else {
      wanted.push_back({.name = name, .shape = whole});
    }
  }
  reader_.require_match(wanted);
  reader_.require_tied();
  for (auto& [name, grown] : grown_) grown.mean = mean_row_of(name, grown.stored);
}

std::vector<double> FolderWeights::mean_row_of(const std::string& name, const Shape& stored) const {
  const int64_t rows = stored.dim(0), columns = stored.numel() / rows;
  std::vector<double> mean(static_cast<size_t>(columns)), some;
  const int64_t at_once = std::max<int64_t>(1, (int64_t{1} << 18) / columns);
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row) * columns;
    some.resize(static_cast<size_t>(count));
    reader_.read(name, stored, row * columns, View(some.data(), DType::f64, Shape{count}));
    for (int64_t i = 0; i < count; ++i) {
      mean[static_cast<size_t>(i % columns)] += some[static_cast<size_t>(i)];
    }
  }
  for (double& value : mean) value /= static_cast<double>(rows);
  return mean;
}

void FolderWeights::read_grown(const autograd::Parameter& parameter, int64_t begin,
                               View out) const {
  const Grown& grown = grown_.find(parameter.name())->second;
  const int64_t end = begin + out.numel(), stored = grown.stored.numel();
  const int64_t there = std::clamp<int64_t>(stored - begin, 0, out.numel());
  if (there > 0) reader_.read(parameter.name(), grown.stored, begin, out.narrow(0, 0, there));
  std::vector<double> rest;
  for (int64_t i = begin + there; i < end; ++i) {
    rest.push_back(grown.mean[static_cast<size_t>(i - stored) % grown.mean.size()]);
  }
  if (rest.empty()) return;
  const View from(rest.data(), DType::f64, Shape{std::ssize(rest)});
  convert_elements(from, out.narrow(0, there, std::ssize(rest)));
}

bool FolderWeights::is_initialised(const autograd::Parameter& parameter) const {
  return std::ranges::find(initialised_, parameter.name()) != initialised_.end();
}

std::optional<Shape> FolderWeights::shape_of(const autograd::Parameter& parameter) const {
  if (is_initialised(parameter) || grown_.contains(parameter.name())) {
    return parameter.whole_shape();
  }
  return reader_.shape_of(parameter.name(), parameter.whole_shape());
}

void FolderWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (is_initialised(parameter)) return initial_.read(parameter, begin, out);
  if (grown_.contains(parameter.name())) return read_grown(parameter, begin, out);
  reader_.read(parameter.name(), parameter.whole_shape(), begin, out);
}

}  // namespace zinc::hub
