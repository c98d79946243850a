#include "nn/models/gpt2_config.h"

#include <array>
#include <string>

#include "core/error.h"

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

void check_gpt2(bool condition, const std::string& message) {
  if (!condition) throw ConfigError(concat("gpt2 model: ", message));
}

void check_gpt2_positive(std::string_view key, int64_t value) {
  check_gpt2(value > 0, concat(key, " must be positive, not ", value));
}

void check_rate(std::string_view key, double value) {
  check_gpt2(value >= 0.0 && value < 1.0, concat(key, " must lie in [0, 1), not ", value));
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
  check_gpt2_positive("vocab_size", vocab_size);
  check_gpt2_positive("n_positions", max_positions);
  check_gpt2_positive("n_embd", hidden_size);
  check_gpt2_positive("n_layer", num_layers);
  check_gpt2_positive("n_head", num_heads);
  check_gpt2(intermediate_size >= 0, concat("n_inner must not be negative: ", intermediate_size));
  check_gpt2(hidden_size % num_heads == 0,
             concat("n_embd (", hidden_size, ") must be a multiple of n_head (", num_heads, ")"));
  check_gpt2(layer_norm_epsilon > 0.0,
             concat("layer_norm_epsilon must be positive, not ", layer_norm_epsilon));
  check_gpt2(initializer_range > 0.0,
             concat("initializer_range must be positive, not ", initializer_range));
  check_rate("embd_pdrop", embedding_dropout);
  check_rate("attn_pdrop", attention_dropout);
  check_rate("resid_pdrop", residual_dropout);
}

Gpt2Config Gpt2Config::preset(std::string_view name) {
  std::string known;
  for (const Gpt2Preset& preset : gpt2_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(concat("there is no GPT-2 preset \"", name, "\"; there are ", known));
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
