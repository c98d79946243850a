#include "nn/model.h"

#include <algorithm>

namespace zinc::nn {

void Model::set_recompute_every(int64_t every, std::optional<int64_t> most) {
  require(every >= 0,
          "model: the number of blocks per recomputed segment must not be negative: ", every);
  require(most.value_or(0) >= 0,
          "model: the number of recomputed blocks must not be negative: ", most.value_or(0));
  recompute_every_ = every;
  most_recomputed_ = most.value_or(std::numeric_limits<int64_t>::max());
}

Batch Model::example(int64_t sequences, int64_t positions) const {
  if (positions == 0) {
    throw ConfigError(
        "the model's longest sequence is not known, so there is no batch to record the model with: "
        "override max_sequence(), set EngineConfig::batch.sequence, or make the engine with "
        "batches of a loader (Run::make_engine(model, loader), EngineOptions::example)");
  }
  const auto tokens = [&] { return Tensor::zeros({sequences, positions}, DType::i32); };
  return {.tensors = {{"input_ids", tokens()}, {"labels", tokens()}},
          .num_targets = sequences * positions,
          .num_tokens = sequences * positions};
}

double Model::flops_per_token(int64_t) { return 6.0 * static_cast<double>(num_parameters()); }

int64_t Model::num_blocks() {
  const auto is_outermost = [](const Module* module) {
    if (!module->is_shard_unit()) return false;
    for (const Module* above = module->parent(); above != nullptr; above = above->parent()) {
      if (above->is_shard_unit()) return false;
    }
    return true;
  };
  const auto all = modules();
  return std::count_if(all.begin(), all.end(), is_outermost);
}

void detail::throw_without(const Model& model, std::string_view needs, const char* interface) {
  throw InvalidArgument(str("model ", model.model_type(), ": ", needs, " needs ", interface,
                            ", which this model does not derive from"));
}

}  // namespace zinc::nn
