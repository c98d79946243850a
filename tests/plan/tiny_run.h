// tests/plan/tiny_run.h: the models and the data of the plan's tests.
#pragma once

#include <cstdint>
#include <string>

#include "data/loader.h"
#include "hub/model.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"

namespace zinc::plan::tiny_run {

inline constexpr int64_t kSeq = 24;

class Tokens final : public data::Dataset {
 public:
  explicit Tokens(int64_t samples = 512) : samples_(samples) {}
  int64_t num_samples() const override { return samples_; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < kSeq; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index * 7 + i) % 61));
      sample.labels.push_back(static_cast<int32_t>((index * 7 + i + 1) % 61));
    }
  }
  std::string describe() const override { return "a pattern"; }

 private:
  const int64_t samples_;
};

inline hub::ModelConfigFile gpt2() {
  nn::Gpt2Config config;
  config.vocab_size = 61;
  config.max_positions = 32;
  config.hidden_size = 48;
  config.num_layers = 3;
  config.num_heads = 4;
  return {.config = config};
}

inline hub::ModelConfigFile llama() {
  nn::LlamaConfig config;
  config.vocab_size = 61;
  config.max_positions = 32;
  config.hidden_size = 32;
  config.intermediate_size = 80;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  return {.config = config};
}

}  // namespace zinc::plan::tiny_run
