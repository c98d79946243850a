#include "nn/models/llama_config.h"

#include <array>
#include <string>

#include "core/error.h"

namespace zinc::nn {
namespace {

struct LlamaPreset {
  std::string_view name;
  LlamaConfig config;
};

const std::array<LlamaPreset, 3>& llama_presets() {
  static const std::array<LlamaPreset, 3> table = {{
      {"llama-tiny",
       {.vocab_size = 256,
        .max_positions = 256,
        .hidden_size = 192,
        .intermediate_size = 512,
        .num_layers = 4,
        .num_heads = 6,
        .num_kv_heads = 2,
        .rms_norm_epsilon = 1e-5}},
      {"llama-1b",
       {.vocab_size = 128256,
        .max_positions = 131072,
        .hidden_size = 2048,
        .intermediate_size = 8192,
        .num_layers = 16,
        .num_heads = 32,
        .num_kv_heads = 8,
        .explicit_head_dim = 64,
        .rms_norm_epsilon = 1e-5,
        .rope_theta = 500000.0,
        .rope_scaling = {.kind = RopeScaling::Kind::llama3,
                         .factor = 32.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_positions = 8192},
        .tie_word_embeddings = true,
        .bos_token = 128000,
        .eos_tokens = {128001}}},
      {"llama-8b",
       {.vocab_size = 128256,
        .max_positions = 131072,
        .hidden_size = 4096,
        .intermediate_size = 14336,
        .num_layers = 32,
        .num_heads = 32,
        .num_kv_heads = 8,
        .rms_norm_epsilon = 1e-5,
        .rope_theta = 500000.0,
        .rope_scaling = {.kind = RopeScaling::Kind::llama3,
                         .factor = 8.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_positions = 8192},
        .bos_token = 128000,
        .eos_tokens = {128001}}},
  }};
  return table;
}

void check_llama(bool condition, const std::string& message) {
  if (!condition) throw ConfigError(concat("llama model: ", message));
}

void check_llama_positive(std::string_view key, int64_t value) {
  check_llama(value > 0, concat(key, " must be positive, not ", value));
}

void check_llama_positive(std::string_view key, double value) {
  check_llama(value > 0.0, concat(key, " must be positive, not ", value));
}

void check_scaling(const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::none) return;
  check_llama_positive("rope_scaling.factor", scaling.factor);
  if (scaling.kind != RopeScaling::Kind::llama3) return;
  check_llama_positive("rope_scaling.original_max_position_embeddings",
                       scaling.original_max_positions);
  check_llama_positive("rope_scaling.low_freq_factor", scaling.low_freq_factor);
  check_llama(
      scaling.high_freq_factor > scaling.low_freq_factor,
      concat("rope_scaling.high_freq_factor (", scaling.high_freq_factor,
             ") must be above rope_scaling.low_freq_factor (", scaling.low_freq_factor, ")"));
}

}  // namespace

int64_t LlamaConfig::num_parameters() const {
  const int64_t C = hidden_size, F = intermediate_size;
  const int64_t q = num_heads * head_dim(), kv = kv_heads() * head_dim();
  const int64_t attention = C * q + 2 * C * kv + q * C + (attention_bias ? q + 2 * kv + C : 0);
  const int64_t mlp = 3 * C * F + (mlp_bias ? 2 * F + C : 0);
  const int64_t head = tie_word_embeddings ? 0 : vocab_size * C;
  return vocab_size * C + num_layers * (attention + mlp + 2 * C) + C + head;
}

void LlamaConfig::validate() const {
  check_llama_positive("vocab_size", vocab_size);
  check_llama_positive("max_position_embeddings", max_positions);
  check_llama_positive("hidden_size", hidden_size);
  check_llama_positive("intermediate_size", intermediate_size);
  check_llama_positive("num_hidden_layers", num_layers);
  check_llama_positive("num_attention_heads", num_heads);
  check_llama(num_kv_heads >= 0,
              concat("num_key_value_heads must not be negative: ", num_kv_heads));
  check_llama(num_heads % kv_heads() == 0,
              concat("num_attention_heads (", num_heads,
                     ") must be a multiple of num_key_value_heads (", kv_heads(), ")"));
  check_llama(explicit_head_dim > 0 || hidden_size % num_heads == 0,
              concat("hidden_size (", hidden_size, ") must be a multiple of num_attention_heads (",
                     num_heads, ") where head_dim is not given"));
  check_llama(head_dim() % 2 == 0,
              concat("head_dim must be even for rotary embeddings: ", head_dim()));
  check_llama_positive("rms_norm_eps", rms_norm_epsilon);
  check_llama_positive("rope_theta", rope_theta);
  check_llama_positive("initializer_range", initializer_range);
  check_llama(attention_dropout >= 0.0 && attention_dropout < 1.0,
              concat("attention_dropout must lie in [0, 1), not ", attention_dropout));
  check_scaling(rope_scaling);
}

LlamaConfig LlamaConfig::preset(std::string_view name) {
  std::string known;
  for (const LlamaPreset& preset : llama_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(concat("there is no Llama preset \"", name, "\"; there are ", known));
}

std::span<const std::string_view> LlamaConfig::preset_names() {
  static const auto names = [] {
    std::array<std::string_view, 3> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = llama_presets()[i].name;
    return result;
  }();
  return names;
}

}  // namespace zinc::nn
