// tests/zero/mesh_models.h: models for ranks that share layers or sequences. Heads divide by 4; the
// vocabulary and other widths do not divide by 2 or 4, so that slices are of unequal sizes.
#pragma once

#include <memory>

#include "nn/models/bloom.h"
#include "nn/models/chatglm.h"
#include "nn/models/gpt_neox.h"

namespace zinc::zero::test {

inline std::unique_ptr<nn::Model> make_mesh_bloom() {
  nn::BloomConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.num_heads = 4;
  return std::make_unique<nn::Bloom>(config);
}

inline std::unique_ptr<nn::Model> make_mesh_neox() {
  nn::GptNeoxConfig config;
  config.vocab_size = 37;
  config.max_positions = 16;
  config.hidden_size = 48;
  config.intermediate_size = 41;
  config.num_layers = 3;
  config.num_heads = 4;
  config.rotary_fraction = 0.5;
  return std::make_unique<nn::GptNeox>(config);
}

inline std::unique_ptr<nn::Model> make_mesh_chatglm(int64_t kv_heads = 4) {
  nn::ChatGlmConfig config;
  config.vocab_size = 37;
  config.max_positions = 16;
  config.hidden_size = 64;
  config.intermediate_size = 39;
  config.num_layers = 3;
  config.num_heads = 8;
  config.num_kv_heads = kv_heads;
  config.qkv_bias = true;
  return std::make_unique<nn::ChatGlm>(config);
}

}  // namespace zinc::zero::test
