#include "nn/models/gpt_neox_config.h"

#include <array>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

constexpr std::array<std::string_view, 1> kGptNeoxPresets = {"gpt-neox-20b"};

}  // namespace

void GptNeoxConfig::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("max_position_embeddings", max_positions);
  check.positive("hidden_size", hidden_size);
  check.positive("intermediate_size", intermediate_size);
  check.positive("num_hidden_layers", num_layers);
  check.positive("num_attention_heads", num_heads);
  check.that(hidden_size % num_heads == 0, "hidden_size (", hidden_size,
             ") must be a multiple of num_attention_heads (", num_heads, ")");
  check.that(rotary_fraction > 0.0 && rotary_fraction <= 1.0, "rotary_pct must lie in (0, 1], not ",
             rotary_fraction);
  check.that(rotary_dims() > 0 && rotary_dims() % 2 == 0, "rotary_pct of a head of ", head_dim(),
             " must be an even number, not ", rotary_dims());
  check.positive("rotary_emb_base", rope_theta);
  check.positive("layer_norm_eps", layer_norm_epsilon);
  check.positive("initializer_range", initializer_range);
  check.rate("attention_dropout", attention_dropout);
  check.rate("hidden_dropout", hidden_dropout);
}

// EleutherAI/gpt-neox-20b: the defaults, with gelu_fast, which is the tanh formula.
GptNeoxConfig GptNeoxConfig::preset(std::string_view name) {
  if (name == kGptNeoxPresets[0]) {
    return {.activation = MlpActivation::gelu_tanh, .bos_token = 0, .eos_tokens = {0}};
  }
  throw ConfigError(
      str("there is no GPT-NeoX preset \"", name, "\"; there is ", kGptNeoxPresets[0]));
}

std::span<const std::string_view> GptNeoxConfig::preset_names() { return kGptNeoxPresets; }

}  // namespace zinc::nn
