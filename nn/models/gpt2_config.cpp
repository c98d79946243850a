#include "nn/models/gpt2_config.h"

#include <array>
#include <string>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

struct Gpt2Preset {
  std::string_view name;
  Gpt2Config config;
};

constexpr int64_t kEndOfText = 50256;

const std::array<Gpt2Preset, 5>& gpt2_presets() {
  static const std::array<Gpt2Preset, 5> table = {{
      {"tiny",
       {.vocab_size = 256,
        .max_positions = 128,
        .hidden_size = 192,
        .num_layers = 4,
        .num_heads = 6}},
      {"gpt2-124m", {.bos_token = kEndOfText, .eos_tokens = {kEndOfText}}},
      {"gpt2-350m",
       {.hidden_size = 1024,
        .num_layers = 24,
        .num_heads = 16,
        .bos_token = kEndOfText,
        .eos_tokens = {kEndOfText}}},
      {"gpt2-774m",
       {.hidden_size = 1280,
        .num_layers = 36,
        .num_heads = 20,
        .bos_token = kEndOfText,
        .eos_tokens = {kEndOfText}}},
      {"gpt2-1.5b",
       {.hidden_size = 1600,
        .num_layers = 48,
        .num_heads = 25,
        .bos_token = kEndOfText,
        .eos_tokens = {kEndOfText}}},
  }};
  return table;
}

}  // namespace

int64_t Gpt2Config::num_parameters() const {
  const int64_t C = hidden_size, F = mlp_size();
  const int64_t norm = 2 * C;
  const int64_t attention = (C * 3 * C + 3 * C) + (C * C + C);
  const int64_t mlp = (C * F + F) + (F * C + C);
  const int64_t embeddings = vocab_size * C + max_positions * C;
  const int64_t head = tie_word_embeddings ? 0 : vocab_size * C;
  return embeddings + num_layers * (2 * norm + attention + mlp) + norm + head;
}

void Gpt2Config::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("n_positions", max_positions);
  check.positive("n_embd", hidden_size);
  check.positive("n_layer", num_layers);
  check.positive("n_head", num_heads);
  check.that(intermediate_size >= 0, "n_inner must not be negative: ", intermediate_size);
  check.that(hidden_size % num_heads == 0, "n_embd (", hidden_size,
             ") must be a multiple of n_head (", num_heads, ")");
  check.positive("layer_norm_epsilon", layer_norm_epsilon);
  check.positive("initializer_range", initializer_range);
  check.rate("embd_pdrop", embedding_dropout);
  check.rate("attn_pdrop", attention_dropout);
  check.rate("resid_pdrop", residual_dropout);
}

Gpt2Config Gpt2Config::preset(std::string_view name) {
  std::string known;
  for (const Gpt2Preset& preset : gpt2_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(str("there is no GPT-2 preset \"", name, "\"; there are ", known));
}

std::span<const std::string_view> Gpt2Config::preset_names() {
  static const auto names = [] {
    std::array<std::string_view, 5> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = gpt2_presets()[i].name;
    return result;
  }();
  return names;
}

}  // namespace zinc::nn
