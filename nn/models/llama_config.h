// nn/models/llama_config.h: the sizes and constants of a Llama model (Touvron et al. 2023; Llama
// 3: Grattafiori et al. 2024) and of its kin: Mistral (Jiang et al. 2023), Qwen2 and Qwen3 (Yang et
// al. 2024, 2025).
//
// A plain value. `hub` reads it from and writes it to a Hugging Face config.json; the JSON
// key of each field stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::nn {

// How the rotary frequencies f_j = theta^(-2j / head_dim) are changed for longer contexts.
struct RopeScaling {
  enum class Kind : uint8_t {
    none,
    linear,  // f / factor
    // By wavelength w = 2 pi / f, with L = original_max_positions: f where w < L / high,
    // f / factor where w > L / low, and between them (1 - s) f / factor + s f with
    // s = (L / w - low) / (high - low).
    llama3,
  };
  Kind kind = Kind::none;              // rope_type, or type
  double factor = 1.0;                 // factor
  double low_freq_factor = 1.0;        // low_freq_factor       (llama3)
  double high_freq_factor = 4.0;       // high_freq_factor      (llama3)
  int64_t original_max_positions = 0;  // original_max_position_embeddings (llama3)

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

enum class LlamaKind : uint8_t {
  llama,
  mistral,  // a window of keys
  qwen2,    // a bias on q, k and v; a window in the layers from one on, off by default
  qwen3,    // norms of each head's q and k before they are turned; windows as qwen2
};

struct LlamaConfig {
  LlamaKind kind = LlamaKind::llama;  // model_type
  int64_t vocab_size = 32000;         // vocab_size
  int64_t max_positions = 2048;       // max_position_embeddings
  int64_t hidden_size = 4096;         // hidden_size
  int64_t intermediate_size = 11008;  // intermediate_size
  int64_t num_layers = 32;            // num_hidden_layers
  int64_t num_heads = 32;             // num_attention_heads
  int64_t num_kv_heads = 0;           // num_key_value_heads; 0: as many as num_heads
  int64_t explicit_head_dim = 0;      // head_dim; 0: hidden_size / num_heads
  double rms_norm_epsilon = 1e-6;     // rms_norm_eps
  double rope_theta = 10000.0;        // rope_theta
  RopeScaling rope_scaling{};         // rope_scaling, or rope_parameters
  bool tie_word_embeddings = false;   // tie_word_embeddings: lm_head shares embed_tokens
  bool attention_bias = false;        // attention_bias: on q, k, v and o projections (llama, qwen3)
  bool mlp_bias = false;              // mlp_bias: on gate, up and down projections (llama)
  int64_t sliding_window = 0;         // sliding_window: keys that a query sees; 0: all (not llama)
  int64_t first_windowed_layer = 0;   // max_window_layers: those before it see all (qwen2, qwen3)
  double attention_dropout = 0.0;     // attention_dropout
  double initializer_range = 0.02;    // initializer_range
  int64_t bos_token = -1;             // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{};  // eos_token_id: a number or a list

  std::string_view model_type() const;
  bool has_qkv_bias() const { return attention_bias || kind == LlamaKind::qwen2; }
  bool has_head_norms() const { return kind == LlamaKind::qwen3; }
  int64_t window_of(int64_t layer) const {  // 0: all keys
    return layer < first_windowed_layer ? 0 : sliding_window;
  }
  int64_t mlp_size() const { return intermediate_size; }
  int64_t kv_heads() const { return num_kv_heads > 0 ? num_kv_heads : num_heads; }
  int64_t head_dim() const {
    return explicit_head_dim > 0 ? explicit_head_dim : hidden_size / num_heads;
  }

  // Number of distinct weights; tied ones count once.
  int64_t num_parameters() const;

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "llama-tiny" (byte vocabulary), "llama-1b" (Llama-3.2-1B), "llama-8b" (Llama-3.1-8B),
  // "llama-70b" (Llama-3-70B), "mistral-7b" (Mistral-7B-v0.1), "qwen2-7b", "qwen3-8b". Throws
  // ConfigError for another name.
  static LlamaConfig preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

}  // namespace zinc::nn
