// nn/models/gpt2_config.h: the sizes and constants of a GPT-2 model (Radford et al. 2019).
//
// A plain value. `hub` reads it from and writes it to a Hugging Face config.json; the JSON
// key of each field stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::nn {

enum class Gpt2Activation : uint8_t {
  gelu_tanh,  // "gelu_new", "gelu_pytorch_tanh": the published models
  gelu_erf,   // "gelu"
  relu,       // "relu"
};

struct Gpt2Config {
  int64_t vocab_size = 50257;                             // vocab_size
  int64_t max_positions = 1024;                           // n_positions: longest sequence
  int64_t hidden_size = 768;                              // n_embd
  int64_t num_layers = 12;                                // n_layer
  int64_t num_heads = 12;                                 // n_head
  int64_t intermediate_size = 0;                          // n_inner; 0: four times hidden_size
  Gpt2Activation activation = Gpt2Activation::gelu_tanh;  // activation_function
  double layer_norm_epsilon = 1e-5;                       // layer_norm_epsilon
  double embedding_dropout = 0.0;                         // embd_pdrop
  double attention_dropout = 0.0;                         // attn_pdrop
  double residual_dropout = 0.0;                          // resid_pdrop
  double initializer_range = 0.02;    // initializer_range: standard deviation of initial weights;
                                      // c_proj weights use it / sqrt(2 num_layers)
  bool tie_word_embeddings = true;    // tie_word_embeddings: lm_head shares wte
  int64_t bos_token = -1;             // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{};  // eos_token_id: a number or a list

  static constexpr std::string_view model_type() { return "gpt2"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return intermediate_size > 0 ? intermediate_size : 4 * hidden_size; }

  // Number of distinct weights; tied ones count once.
  int64_t num_parameters() const;

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "tiny" (byte vocabulary, 1.8 M weights), "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1.5b".
  // Dropout is 0 in all of them: they are meant for training from scratch on a stream of fresh
  // tokens; a config.json keeps its own rates. Throws ConfigError for another name.
  static Gpt2Config preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

}  // namespace zinc::nn
