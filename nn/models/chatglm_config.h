// nn/models/chatglm_config.h: the sizes and constants of a ChatGLM2 or ChatGLM3 model (Z.AI, 2023).
//
// A plain value; the JSON key of each field in its config.json stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::nn {

struct ChatGlmConfig {
  int64_t vocab_size = 65024;         // padded_vocab_size
  int64_t max_positions = 2048;       // seq_length
  int64_t hidden_size = 4096;         // hidden_size
  int64_t intermediate_size = 13696;  // ffn_hidden_size: width of the gate and of the gated half
  int64_t num_layers = 28;            // num_layers
  int64_t num_heads = 32;             // num_attention_heads
  int64_t num_kv_heads = 0;           // multi_query_group_num; 0: as many as num_heads
  bool qkv_bias = false;              // add_qkv_bias
  bool linear_bias = false;           // add_bias_linear: on every other projection
  double rope_ratio = 1.0;            // rope_ratio: theta is 10000 times this
  double rms_norm_epsilon = 1e-5;     // layernorm_epsilon
  double attention_dropout = 0.0;     // attention_dropout
  double hidden_dropout = 0.0;        // hidden_dropout: behind attention and MLP
  double initializer_range = 0.02;    // not in published files
  bool tie_word_embeddings = false;   // tie_word_embeddings
  int64_t bos_token = -1;             // bos_token_id; -1: none
  int64_t pad_token = 0;              // pad_token_id; -1: none
  std::vector<int64_t> eos_tokens = {2};  // eos_token_id: a number or a list

  static constexpr std::string_view model_type() { return "chatglm"; }
  int64_t head_dim() const { return hidden_size / num_heads; }  // kv_channels
  int64_t kv_heads() const { return num_kv_heads > 0 ? num_kv_heads : num_heads; }
  int64_t mlp_size() const { return intermediate_size; }
  int64_t rotary_dims() const { return head_dim() / 2; }  // the first half of each head is turned

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "chatglm3-6b". Throws ConfigError for another name.
  static ChatGlmConfig preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const ChatGlmConfig&, const ChatGlmConfig&) = default;
};

}  // namespace zinc::nn
