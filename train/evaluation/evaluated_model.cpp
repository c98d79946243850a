#include "train/evaluation/evaluated_model.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "generate/texts_of_ranks.h"
#include "hub/adapter.h"
#include "hub/tuning.h"

namespace zinc::train {
namespace {

zero::EngineConfig config_of(const EvaluatedModelOptions& options) {
  zero::EngineConfig config;
  config.batch = {.micro_batch = options.sequences, .sequence = options.positions};
  config.precision.dtype = options.dtype;
  config.zero.stage = options.sharded ? 3 : 0;
  return config;
}

int64_t items_of_rank(const comm::World& world, int64_t count) {
  return (count + world.size() - 1) / world.size();
}

}  // namespace

EvaluatedModel::EvaluatedModel(const std::string& folder, const hub::ModelConfig& config,
                               comm::World& world, const EvaluatedModelOptions& options)
    : world_(world), model_(hub::make_model(config)) {
  const hub::FolderWeights base(folder, *model_, config);
  if (!options.adapter.empty()) hub::apply_tuning(*model_, hub::tuning_of_adapter(options.adapter));
  const hub::AdaptedWeights weights(*model_, &base, hub::name_map(config), options.adapter);
  engine_ = std::make_unique<zero::Engine>(
      *model_, config_of(options), world,
      zero::EngineOptions{.computes_only = true, .weights = &weights});
}

EvaluatedModel::~EvaluatedModel() = default;

zero::Evaluation EvaluatedModel::evaluate(const nn::Batch& batch) {
  return engine_->evaluate(batch);
}

std::vector<int32_t> EvaluatedModel::classify(const nn::Batch& batch) {
  auto& model = nn::require_interface<nn::HasOutputs>(*model_, "a figure of classes");
  const Tensor logits = engine_->predict([&] { return model.outputs(batch)["logits"]; });
  require(logits.rank() == 2, model_->model_type(),
          ": logits of classes must be [B, classes], not ", logits.shape());
  const std::vector<float> values = logits.to_vector<float>();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    throw NumericsError(
        "the model's logits are no numbers: its weights are damaged, or too large for their type "
        "(--dtype f32 has the widest range)");
  }
  const auto classes = static_cast<std::ptrdiff_t>(logits.dim(1));
  std::vector<int32_t> likeliest;
  for (auto row = values.begin(); row != values.end(); row += classes) {
    likeliest.push_back(static_cast<int32_t>(std::max_element(row, row + classes) - row));
  }
  return likeliest;
}

std::vector<generate::GeneratedTexts> EvaluatedModel::generate(
    std::vector<std::vector<int32_t>> prompts, const generate::GenerateOptions& options,
    const generate::OnToken& on_token) {
  return generate::write_texts(*engine_, std::move(prompts), options, on_token);
}

void for_each_of_rank(comm::World& world, int64_t count,
                      const std::function<void(int64_t item)>& work) {
  std::exception_ptr failure;
  for (int64_t round = 0; round < items_of_rank(world, count); ++round) {
    const int64_t item = round * world.size() + world.rank();
    const bool works = item < count && failure == nullptr;
    try {
      work(works ? item : -1);
    } catch (...) {
      if (!works) throw;  // the peers are gone
      failure = std::current_exception();
    }
  }
  comm::require_all_succeeded(world, "evaluation", failure);
}

std::vector<double> gather_items(comm::World& world, int64_t count, std::span<const double> mine) {
  const int64_t rounds = items_of_rank(world, count);
  std::vector<double> padded(mine.begin(), mine.end());
  padded.resize(static_cast<size_t>(rounds));
  const std::vector<double> all = comm::gather_values(world, padded);
  std::vector<double> ordered;
  for (int64_t item = 0; item < count; ++item) {
    ordered.push_back(
        all[static_cast<size_t>((item % world.size()) * rounds + item / world.size())]);
  }
  return ordered;
}

std::vector<std::vector<int32_t>> gather_items(comm::World& world, int64_t count,
                                               std::span<const std::vector<int32_t>> mine) {
  std::vector<double> lengths, tokens;
  for (const std::vector<int32_t>& item : mine) {
    lengths.push_back(static_cast<double>(item.size()));
    tokens.insert(tokens.end(), item.begin(), item.end());
  }
  const std::vector<double> all_lengths = gather_items(world, count, lengths);
  const auto own = static_cast<double>(tokens.size());
  const std::vector<double> totals = comm::gather_values(world, {&own, 1});
  const auto most = static_cast<size_t>(*std::ranges::max_element(totals));
  tokens.resize(most);
  const std::vector<double> all =
      most == 0 ? std::vector<double>{} : comm::gather_values(world, tokens);
  std::vector<size_t> at(static_cast<size_t>(world.size()));
  for (size_t rank = 0; rank < at.size(); ++rank) at[rank] = rank * most;
  std::vector<std::vector<int32_t>> ordered;
  for (int64_t item = 0; item < count; ++item) {
    size_t& begin = at[static_cast<size_t>(item % world.size())];
    std::vector<int32_t>& list = ordered.emplace_back();
    for (auto left = static_cast<int64_t>(all_lengths[static_cast<size_t>(item)]); left > 0;
         --left) {
      list.push_back(static_cast<int32_t>(all[begin++]));
    }
  }
  return ordered;
}

}  // namespace zinc::train
