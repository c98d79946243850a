#include "nn/models/t5_config.h"

#include <array>
#include <string>

#include "core/error.h"
#include "nn/models/config_check.h"

namespace zinc::nn {
namespace {

struct T5Preset {
  std::string_view name;
  T5Config config;
};

T5Config flan_t5(int64_t width, int64_t inner, int64_t layers, int64_t heads) {
  return {.hidden_size = width,
          .intermediate_size = inner,
          .num_layers = layers,
          .num_decoder_layers = layers,
          .num_heads = heads,
          .activation = T5Activation::gated_gelu_tanh,
          .dropout = 0.1,
          .tie_word_embeddings = false};
}

const std::array<T5Preset, 6>& t5_presets() {
  static const std::array<T5Preset, 6> table = {{
      {"t5-small", {.num_decoder_layers = 6, .dropout = 0.1}},
      {"flan-t5-small", flan_t5(512, 1024, 8, 6)},
      {"flan-t5-base", flan_t5(768, 2048, 12, 12)},
      {"flan-t5-large", flan_t5(1024, 2816, 24, 16)},
      {"flan-t5-xl", flan_t5(2048, 5120, 24, 32)},
      {"flan-t5-xxl", flan_t5(4096, 10240, 24, 64)},
  }};
  return table;
}

}  // namespace

int64_t T5Config::num_parameters() const {
  const int64_t C = hidden_size, I = attention_size();
  const int64_t attention = 4 * C * I + C;
  const int64_t matrices = activation == T5Activation::relu ? 2 : 3;
  const int64_t mlp = matrices * C * intermediate_size + C;
  const int64_t stacks = 2 * (relative_buckets * num_heads + C);
  const int64_t embeddings = vocab_size * C * (tie_word_embeddings ? 1 : 2);
  return embeddings + stacks + num_layers * (attention + mlp) +
         decoder_layers() * (2 * attention + mlp);
}

void T5Config::validate() const {
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("d_model", hidden_size);
  check.positive("d_kv", head_size);
  check.positive("d_ff", intermediate_size);
  check.positive("num_layers", num_layers);
  check.positive("num_heads", num_heads);
  check.that(num_decoder_layers >= 0,
             "num_decoder_layers must not be negative: ", num_decoder_layers);
  check.that(relative_buckets >= 4 && relative_buckets % 2 == 0,
             "relative_attention_num_buckets must be even and 4 or more, not ", relative_buckets);
  check.that(relative_max_distance > relative_buckets / 2,
             "relative_attention_max_distance must be more than half of "
             "relative_attention_num_buckets, not ",
             relative_max_distance);
  check.positive("layer_norm_epsilon", layer_norm_epsilon);
  check.positive("initializer_factor", initializer_factor);
  check.rate("dropout_rate", dropout);
  const auto is_token = [&](int64_t token) { return token >= 0 && token < vocab_size; };
  check.that(is_token(decoder_start_token),
             "decoder_start_token_id must be a token of the vocabulary, not ", decoder_start_token);
  check.that(is_token(pad_token), "pad_token_id must be a token of the vocabulary, not ",
             pad_token);
}

T5Config T5Config::preset(std::string_view name) {
  std::string known;
  for (const T5Preset& preset : t5_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(str("there is no T5 preset \"", name, "\"; there are ", known));
}

std::span<const std::string_view> T5Config::preset_names() {
  static const auto names = [] {
    std::array<std::string_view, 6> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = t5_presets()[i].name;
    return result;
  }();
  return names;
}

}  // namespace zinc::nn
