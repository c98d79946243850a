#include "train/evaluation/evaluated_model.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "autograd/mode.h"
#include "core/error.h"
#include "zero/gather_values.h"

namespace zinc::train {
namespace {

// An engine has to train something, and to keep states of it: of several smallest parameters the
// last, which the fewest nodes of a graph stand behind.
void freeze_all_but_one(nn::Model& model) {
  std::string smallest;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter->numel() > least) continue;
    least = parameter->numel();
    smallest = name;
  }
  model.freeze("*");
  model.unfreeze(smallest);
}

zero::EngineConfig sharded_config(const EvaluatedModelOptions& options) {
  zero::EngineConfig config;
  config.batch = {.micro_batch = options.sequences, .sequence = options.positions};
  config.precision.dtype = options.dtype;
  config.zero.stage = 3;
  return config;
}

// Infinite ones are refused too: a model whose weights are whole has none.
Tensor require_logits(Tensor logits) {
  for (const float value : logits.to_vector<float>()) {
    if (!std::isfinite(value)) {
      throw NumericsError(
          "the model's logits are no numbers: its weights are damaged, or too large "
          "for their type (--dtype f32 has the widest range)");
    }
  }
  return logits;
}

int64_t items_of_rank(const comm::World& world, int64_t count) {
  return (count + world.size() - 1) / world.size();
}

}  // namespace

EvaluatedModel::EvaluatedModel(const std::string& folder, const ModelConfig& config,
                               comm::World& world, const EvaluatedModelOptions& options)
    : world_(world), model_(make_model(config)) {
  const FolderWeights weights(folder, *model_, config);
  if (options.sharded) {
    freeze_all_but_one(*model_);
    engine_ = std::make_unique<zero::Engine>(*model_, sharded_config(options), world,
                                             zero::EngineOptions{.weights = &weights});
  } else {
    model_->set_dtype(options.dtype);
    model_->load(weights);
    cached_ = std::make_unique<CachedLogits>(*model_);
  }
  model_->eval();
}

EvaluatedModel::~EvaluatedModel() = default;

zero::Evaluation EvaluatedModel::evaluate(const nn::Batch& batch) {
  if (engine_ != nullptr) return engine_->evaluate(batch);
  const autograd::NoGrad no_grad;
  return {.loss_sum = model_->loss(batch).item(), .num_targets = batch.num_targets};
}

std::vector<int32_t> EvaluatedModel::generate(std::span<const int32_t> prompt,
                                              const GenerateOptions& options) {
  const autograd::NoGrad no_grad;
  if (engine_ == nullptr) {
    if (prompt.empty()) return {};
    return train::generate([&](const Tensor& ids) { return require_logits((*cached_)(ids)); },
                           prompt, options);
  }
  // A round of calls for as long as one rank still writes; one that fails goes on calling.
  std::vector<int32_t> tokens;
  std::exception_ptr failure;
  try {
    const auto next_logits = [&](const Tensor& ids) {
      zero::any_rank(world_, true);
      return require_logits(engine_->next_logits(ids));
    };
    if (!prompt.empty()) tokens = train::generate(next_logits, prompt, options);
  } catch (const CommError&) {
    throw;
  } catch (...) {
    failure = std::current_exception();
  }
  const Tensor anything = Tensor::from<int32_t>(std::vector<int32_t>{0}, {1, 1});
  while (zero::any_rank(world_, false)) engine_->next_logits(anything);
  if (failure != nullptr) std::rethrow_exception(failure);
  return tokens;
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
  zero::require_all_succeeded(world, "evaluation", failure);
}

std::vector<double> gather_items(comm::World& world, int64_t count, std::span<const double> mine) {
  const int64_t rounds = items_of_rank(world, count);
  std::vector<double> padded(mine.begin(), mine.end());
  padded.resize(static_cast<size_t>(rounds));
  const std::vector<double> all = zero::gather_values(world, padded);
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
  const std::vector<double> totals = zero::gather_values(world, {&own, 1});
  const auto most = static_cast<size_t>(*std::ranges::max_element(totals));
  tokens.resize(most);
  const std::vector<double> all =
      most == 0 ? std::vector<double>{} : zero::gather_values(world, tokens);
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
