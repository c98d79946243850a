// nn/models/gpt_neox_config.h: the sizes and constants of a GPT-NeoX model (Black et al. 2022).
//
// A plain value; the JSON key of each field in a Hugging Face config.json stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "nn/mlp.h"

namespace zinc::nn {

struct GptNeoxConfig {
  int64_t vocab_size = 50432;                          // vocab_size
  int64_t max_positions = 2048;                        // max_position_embeddings
  int64_t hidden_size = 6144;                          // hidden_size
  int64_t intermediate_size = 24576;                   // intermediate_size
  int64_t num_layers = 44;                             // num_hidden_layers
  int64_t num_heads = 64;                              // num_attention_heads
  MlpActivation activation = MlpActivation::gelu_erf;  // hidden_act
  double rotary_fraction = 0.25;      // rotary_pct: of each head, the part that turns
  double rope_theta = 10000.0;        // rotary_emb_base, or rope_theta
  bool parallel_residual = true;      // use_parallel_residual
  bool attention_bias = true;         // attention_bias
  double layer_norm_epsilon = 1e-5;   // layer_norm_eps
  double attention_dropout = 0.0;     // attention_dropout
  double hidden_dropout = 0.0;        // hidden_dropout: behind the embedding, attention and MLP
  double initializer_range = 0.02;    // initializer_range
  bool tie_word_embeddings = false;   // tie_word_embeddings: embed_out shares embed_in
  int64_t bos_token = -1;             // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{};  // eos_token_id: a number or a list

  static constexpr std::string_view model_type() { return "gpt_neox"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return intermediate_size; }
  int64_t rotary_dims() const {
    return static_cast<int64_t>(static_cast<double>(head_dim()) * rotary_fraction);
  }

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "gpt-neox-20b". Throws ConfigError for another name.
  static GptNeoxConfig preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const GptNeoxConfig&, const GptNeoxConfig&) = default;
};

}  // namespace zinc::nn
