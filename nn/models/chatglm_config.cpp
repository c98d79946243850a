#include "nn/models/chatglm_config.h"

#include <array>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

constexpr std::array<std::string_view, 1> kChatGlmPresets = {"chatglm3-6b"};

}  // namespace

void ChatGlmConfig::validate() const {
  const ConfigCheck check(model_type());
  check.positive("padded_vocab_size", vocab_size);
  check.positive("seq_length", max_positions);
  check.positive("hidden_size", hidden_size);
  check.positive("ffn_hidden_size", intermediate_size);
  check.positive("num_layers", num_layers);
  check.positive("num_attention_heads", num_heads);
  check.that(num_kv_heads >= 0, "multi_query_group_num must be positive, not ", num_kv_heads);
  check.that(hidden_size % num_heads == 0, "hidden_size (", hidden_size,
             ") must be a multiple of num_attention_heads (", num_heads, ")");
  check.that(num_heads % kv_heads() == 0, "num_attention_heads (", num_heads,
             ") must be a multiple of multi_query_group_num (", kv_heads(), ")");
  check.that(head_dim() % 4 == 0, "half of a head turns in pairs: hidden_size / ",
             "num_attention_heads must be a multiple of 4, not ", head_dim());
  check.positive("rope_ratio", rope_ratio);
  check.positive("layernorm_epsilon", rms_norm_epsilon);
  check.positive("initializer_range", initializer_range);
  check.rate("attention_dropout", attention_dropout);
  check.rate("hidden_dropout", hidden_dropout);
}

// THUDM/chatglm3-6b.
ChatGlmConfig ChatGlmConfig::preset(std::string_view name) {
  if (name == kChatGlmPresets[0]) {
    return {.max_positions = 8192, .num_kv_heads = 2, .qkv_bias = true};
  }
  throw ConfigError(
      str("there is no ChatGLM preset \"", name, "\"; there is ", kChatGlmPresets[0]));
}

std::span<const std::string_view> ChatGlmConfig::preset_names() { return kChatGlmPresets; }

}  // namespace zinc::nn
