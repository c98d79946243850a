// nn/models/t5_config.h: the sizes and constants of a T5 model (Raffel et al. 2020), of version 1.1
// too (FLAN-T5: Chung et al. 2022).
//
// A plain value. The key of a Hugging Face config.json stands beside each field.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::nn {

enum class T5Activation : uint8_t {
  relu,             // "relu": wo relu(wi x), version 1.0
  gated_gelu_tanh,  // "gated-gelu": wo (gelu(wi_0 x) * wi_1 x), version 1.1
};

struct T5Config {
  int64_t vocab_size = 32128;           // vocab_size
  int64_t max_positions = 512;          // n_positions: the length it was trained on; no limit
  int64_t hidden_size = 512;            // d_model
  int64_t head_size = 64;               // d_kv; num_heads * d_kv need not be d_model
  int64_t intermediate_size = 2048;     // d_ff
  int64_t num_layers = 6;               // num_layers: in the encoder
  int64_t num_decoder_layers = 0;       // num_decoder_layers; 0: as many as num_layers
  int64_t num_heads = 8;                // num_heads
  int64_t relative_buckets = 32;        // relative_attention_num_buckets
  int64_t relative_max_distance = 128;  // relative_attention_max_distance
  T5Activation activation = T5Activation::relu;  // feed_forward_proj
  double layer_norm_epsilon = 1e-6;              // layer_norm_epsilon
  double dropout = 0.0;                          // dropout_rate
  double initializer_factor = 1.0;               // initializer_factor
  bool tie_word_embeddings = true;    // tie_word_embeddings: the head shares the embedding, and the
                                      // decoder's output is multiplied with d_model^-1/2 before it
  bool head_begins_as_table = false;  // tie_word_embeddings beside scale_decoder_outputs false: the
                                      // head is its own, and files without one have it equal
  int64_t decoder_start_token = 0;    // decoder_start_token_id
  int64_t pad_token = 0;              // pad_token_id: the decoder's input behind a text's end
  int64_t bos_token = -1;             // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{1};  // eos_token_id: a number or a list

  std::string_view model_type() const { return "t5"; }
  int64_t decoder_layers() const {
    return num_decoder_layers > 0 ? num_decoder_layers : num_layers;
  }
  int64_t head_dim() const { return head_size; }
  int64_t attention_size() const { return num_heads * head_size; }
  int64_t mlp_size() const { return intermediate_size; }

  // Number of distinct weights; tied ones count once.
  int64_t num_parameters() const;

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "t5-small" (version 1.0), "flan-t5-small", "-base", "-large", "-xl", "-xxl": as published.
  // Throws ConfigError for another name.
  static T5Config preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const T5Config&, const T5Config&) = default;
};

}  // namespace zinc::nn
