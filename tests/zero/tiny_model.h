// tests/zero/tiny_model.h: a small GPT-2 and batches for it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/philox.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"

namespace zinc::zero::test {

inline nn::Gpt2Config tiny_config(double dropout = 0.0) {
  nn::Gpt2Config config;
  config.vocab_size = 37;
  config.max_positions = 16;
  config.hidden_size = 24;
  config.num_layers = 4;
  config.num_heads = 3;
  config.embedding_dropout = dropout;
  config.attention_dropout = dropout;
  config.residual_dropout = dropout;
  return config;
}

inline nn::LlamaConfig tiny_llama_config() {
  nn::LlamaConfig config;
  config.vocab_size = 37;
  config.max_positions = 16;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_layers = 4;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  return config;
}

// Micro-batch `index` of a fixed stream; every fifth label is ignored.
inline nn::Batch make_batch(int64_t index, int64_t B = 2, int64_t T = 9, int64_t V = 37) {
  const RandomKey key = make_random_key(99, Purpose::test, 0, static_cast<uint64_t>(index), 0);
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;
  nn::Batch batch;
  for (int64_t i = 0; i < B * T; ++i) {
    ids.push_back(key.bits(static_cast<uint64_t>(2 * i)) % V);
    const bool ignored = (i + index) % 5 == 4;
    labels.push_back(ignored ? nn::kIgnoredLabel : key.bits(static_cast<uint64_t>(2 * i + 1)) % V);
    if (!ignored) ++batch.num_targets;
  }
  const auto tensor = [&](std::span<const int64_t> values) {
    return Tensor::from<int64_t>(values, {B, T}, DType::i32);
  };
  batch.tensors = {{"input_ids", tensor(ids)}, {"labels", tensor(labels)}};
  batch.num_tokens = B * T;
  batch.global_micro_batch = index;
  return batch;
}

}  // namespace zinc::zero::test
