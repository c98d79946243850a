#include "nn/models/llama_config.h"

#include <array>
#include <string>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

struct LlamaPreset {
  std::string_view name;
  LlamaConfig config;
};

const std::array<LlamaPreset, 7>& llama_presets() {
  static const std::array<LlamaPreset, 7> table = {{
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
      {"llama-70b",
       {.vocab_size = 128256,
        .max_positions = 8192,
        .hidden_size = 8192,
        .intermediate_size = 28672,
        .num_layers = 80,
        .num_heads = 64,
        .num_kv_heads = 8,
        .rms_norm_epsilon = 1e-5,
        .rope_theta = 500000.0,
        .bos_token = 128000,
        .eos_tokens = {128001}}},
      {"mistral-7b",
       {.kind = LlamaKind::mistral,
        .max_positions = 32768,
        .intermediate_size = 14336,
        .num_kv_heads = 8,
        .rms_norm_epsilon = 1e-5,
        .sliding_window = 4096,
        .bos_token = 1,
        .eos_tokens = {2}}},
      {"qwen2-7b",
       {.kind = LlamaKind::qwen2,
        .vocab_size = 152064,
        .max_positions = 131072,
        .hidden_size = 3584,
        .intermediate_size = 18944,
        .num_layers = 28,
        .num_heads = 28,
        .num_kv_heads = 4,
        .rope_theta = 1e6,
        .bos_token = 151643,
        .eos_tokens = {151643}}},
      {"qwen3-8b",
       {.kind = LlamaKind::qwen3,
        .vocab_size = 151936,
        .max_positions = 40960,
        .intermediate_size = 12288,
        .num_layers = 36,
        .num_kv_heads = 8,
        .explicit_head_dim = 128,
        .rope_theta = 1e6,
        .bos_token = 151643,
        .eos_tokens = {151645}}},
  }};
  return table;
}

void check_scaling(const ConfigCheck& check, const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::none) return;
  check.positive("rope_scaling.factor", scaling.factor);
  if (scaling.kind != RopeScaling::Kind::llama3) return;
  check.positive("rope_scaling.original_max_position_embeddings", scaling.original_max_positions);
  check.positive("rope_scaling.low_freq_factor", scaling.low_freq_factor);
  check.that(scaling.high_freq_factor > scaling.low_freq_factor, "rope_scaling.high_freq_factor (",
             scaling.high_freq_factor, ") must be above rope_scaling.low_freq_factor (",
             scaling.low_freq_factor, ")");
}

}  // namespace

int64_t LlamaConfig::num_parameters() const {
  const int64_t C = hidden_size, F = intermediate_size;
  const int64_t q = num_heads * head_dim(), kv = kv_heads() * head_dim();
  const int64_t biases = (has_qkv_bias() ? q + 2 * kv : 0) + (attention_bias ? C : 0);
  const int64_t norms = has_head_norms() ? 2 * head_dim() : 0;
  const int64_t attention = C * q + 2 * C * kv + q * C + biases + norms;
  const int64_t mlp = 3 * C * F + (mlp_bias ? 2 * F + C : 0);
  const int64_t head = tie_word_embeddings ? 0 : vocab_size * C;
  return vocab_size * C + num_layers * (attention + mlp + 2 * C) + C + head;
}

void LlamaConfig::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("max_position_embeddings", max_positions);
  check.positive("hidden_size", hidden_size);
  check.positive("intermediate_size", intermediate_size);
  check.positive("num_hidden_layers", num_layers);
  check.positive("num_attention_heads", num_heads);
  check.that(num_kv_heads >= 0, "num_key_value_heads must not be negative: ", num_kv_heads);
  check.that(num_heads % kv_heads() == 0, "num_attention_heads (", num_heads,
             ") must be a multiple of num_key_value_heads (", kv_heads(), ")");
  check.that(explicit_head_dim > 0 || hidden_size % num_heads == 0, "hidden_size (", hidden_size,
             ") must be a multiple of num_attention_heads (", num_heads,
             ") where head_dim is not given");
  check.that(head_dim() % 2 == 0, "head_dim must be even for rotary embeddings: ", head_dim());
  check.positive("rms_norm_eps", rms_norm_epsilon);
  check.positive("rope_theta", rope_theta);
  check.positive("initializer_range", initializer_range);
  check.rate("attention_dropout", attention_dropout);
  check.that(sliding_window >= 0, "sliding_window must not be negative: ", sliding_window);
  check.that(first_windowed_layer >= 0,
             "max_window_layers must not be negative: ", first_windowed_layer);
  check_scaling(check, rope_scaling);
}

std::string_view LlamaConfig::model_type() const {
  switch (kind) {
    case LlamaKind::llama:
      return "llama";
    case LlamaKind::mistral:
      return "mistral";
    case LlamaKind::qwen2:
      return "qwen2";
    case LlamaKind::qwen3:
      return "qwen3";
  }
  return "?";
}

LlamaConfig LlamaConfig::preset(std::string_view name) {
  std::string known;
  for (const LlamaPreset& preset : llama_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(str("there is no Llama preset \"", name, "\"; there are ", known));
}

std::span<const std::string_view> LlamaConfig::preset_names() {
  static const auto names = [] {
    std::array<std::string_view, 7> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = llama_presets()[i].name;
    return result;
  }();
  return names;
}

}  // namespace zinc::nn
