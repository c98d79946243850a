#include <algorithm>
#include <string>

#include "bench/registry.h"
#include "hub/family.h"
#include "hub/model.h"
#include "nn/mlp.h"

namespace zinc::bench {

ModelShape shape_of_preset(std::string_view preset) {
  constexpr int64_t kLongest = 2048;
  const hub::ModelConfig config = hub::find_model_config(std::string(preset)).config;
  const hub::ModelSizes sizes = config.family().sizes(config.value());
  const auto model = hub::make_model(config);
  const auto modules = model->modules();
  return {.name = std::string(preset),
          .hidden = sizes.hidden_size,
          .intermediate = sizes.mlp_size,
          .heads = sizes.num_heads,
          .kv_heads = sizes.num_kv_heads,
          .head_dim = sizes.head_dim,
          .vocabulary = sizes.vocab_size,
          .seq = std::min(sizes.max_positions, kLongest),
          .gated = std::ranges::any_of(modules, [](const nn::Module* module) {
            return dynamic_cast<const nn::GatedMlp*>(module) != nullptr;
          })};
}

}  // namespace zinc::bench
