#include "nn/model.h"

#include <algorithm>

#include <utility>

#include "core/error.h"

namespace zinc::nn {

void Model::set_recompute_every(int64_t every) {
  require(every >= 0,
          "model: the number of blocks per recomputed segment must not be negative: ", every);
  recompute_every_ = every;
}

Tensor Model::stage(int64_t index, const Batch& batch, Tensor x) {
  require(index == 0 && !x.defined(), "model: ", architecture(), " has one stage, the whole loss");
  return loss(batch);
}

Batch Model::example(int64_t sequences, int64_t positions) const {
  return {.input_ids = Tensor::zeros({sequences, positions}, DType::i32),
          .labels = Tensor::zeros({sequences, positions}, DType::i32),
          .num_targets = sequences * positions,
          .num_tokens = sequences * positions};
}

int64_t Model::num_blocks() {
  const auto all = modules();
  return std::count_if(all.begin(), all.end(),
                       [](const Module* module) { return module->is_shard_unit(); });
}

Tensor Model::loss_of_stages(const Batch& batch) {
  Tensor x;
  const int64_t count = num_stages();
  for (int64_t index = 0; index < count; ++index) x = stage(index, batch, std::move(x));
  return x;
}

Tensor Model::next_logits(const Tensor&, KvCache&) {
  throw InvalidArgument(concat("model: ", architecture(), " does not generate with a cache"));
}

}  // namespace zinc::nn
