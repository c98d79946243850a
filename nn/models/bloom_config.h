// nn/models/bloom_config.h: the sizes and constants of a BLOOM model (BigScience 2022).
//
// A plain value; the JSON key of each field in a Hugging Face config.json stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::nn {

struct BloomConfig {
  int64_t vocab_size = 250880;  // vocab_size
  // seq_length: the length it was trained on. ALiBi sets no limit.
  int64_t max_positions = 2048;
  int64_t hidden_size = 64;           // hidden_size, or n_embed; the MLP is four times as wide
  int64_t num_layers = 2;             // n_layer
  int64_t num_heads = 8;              // n_head
  double layer_norm_epsilon = 1e-5;   // layer_norm_epsilon
  double attention_dropout = 0.0;     // attention_dropout
  double hidden_dropout = 0.0;        // hidden_dropout
  double initializer_range = 0.02;    // initializer_range
  bool tie_word_embeddings = true;    // tie_word_embeddings: lm_head shares word_embeddings
  int64_t bos_token = -1;             // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{};  // eos_token_id: a number or a list
  int64_t pad_token = -1;             // pad_token_id; -1: none

  static constexpr std::string_view model_type() { return "bloom"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return 4 * hidden_size; }

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "bloomz-7b1". Throws ConfigError for another name.
  static BloomConfig preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const BloomConfig&, const BloomConfig&) = default;
};

}  // namespace zinc::nn
