#include "nn/models/bloom_config.h"

#include <array>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

constexpr std::array<std::string_view, 1> kBloomPresets = {"bloomz-7b1"};

}  // namespace

void BloomConfig::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("seq_length", max_positions);
  check.positive("hidden_size", hidden_size);
  check.positive("n_layer", num_layers);
  check.positive("n_head", num_heads);
  check.that(hidden_size % num_heads == 0, "hidden_size (", hidden_size,
             ") must be a multiple of n_head (", num_heads, ")");
  check.positive("layer_norm_epsilon", layer_norm_epsilon);
  check.positive("initializer_range", initializer_range);
  check.rate("attention_dropout", attention_dropout);
  check.rate("hidden_dropout", hidden_dropout);
}

BloomConfig BloomConfig::preset(std::string_view name) {
  if (name == kBloomPresets[0]) {
    return {.hidden_size = 4096,
            .num_layers = 30,
            .num_heads = 32,
            .bos_token = 1,
            .eos_tokens = {2},
            .pad_token = 3};
  }
  throw ConfigError(str("there is no BLOOM preset \"", name, "\"; there is ", kBloomPresets[0]));
}

std::span<const std::string_view> BloomConfig::preset_names() { return kBloomPresets; }

}  // namespace zinc::nn
