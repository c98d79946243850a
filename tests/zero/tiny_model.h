// tests/zero/tiny_model.h: small models of several families, and batches for them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/philox.h"
#include "nn/models/bert.h"
#include "nn/models/bloom.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/models/t5.h"

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

// Tied, with one table of distances in each stack for all of its blocks.
inline nn::T5Config tiny_t5_config(double dropout = 0.0) {
  nn::T5Config config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.head_size = 6;
  config.intermediate_size = 40;
  config.num_layers = 3;
  config.num_decoder_layers = 2;
  config.num_heads = 3;
  config.relative_buckets = 8;
  config.relative_max_distance = 10;
  config.dropout = dropout;
  return config;
}

inline nn::BertConfig tiny_roberta_config(double dropout = 0.0) {
  nn::BertConfig config;
  config.kind = nn::BertKind::roberta;
  config.vocab_size = 37;
  config.max_positions = 16;
  config.type_vocab_size = 1;
  config.hidden_size = 24;
  config.num_layers = 4;
  config.num_heads = 3;
  config.intermediate_size = 40;
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  config.pad_token = 1;
  return config;
}

inline nn::BloomConfig tiny_bloom_config() {
  nn::BloomConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.num_layers = 4;
  config.num_heads = 3;
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

// The model families that tests train. The first block of BLOOM, and all blocks of RoBERTa, take
// the result of a norm.
enum class Family : uint8_t { gpt2, llama, t5, roberta, bloom };
inline constexpr Family kFamilies[] = {Family::gpt2, Family::llama, Family::t5, Family::roberta};

inline std::string_view name_of(Family family) {
  constexpr std::string_view kNames[] = {"Gpt2", "Llama", "T5", "Roberta", "Bloom"};
  return kNames[static_cast<size_t>(family)];
}

// Has dropout wherever the family has it.
inline std::unique_ptr<nn::Model> make_tiny_model(Family family, double dropout = 0.1) {
  switch (family) {
    case Family::gpt2:
      return std::make_unique<nn::Gpt2>(tiny_config(dropout));
    case Family::llama:
      return std::make_unique<nn::Llama>(tiny_llama_config());
    case Family::t5:
      return std::make_unique<nn::T5>(tiny_t5_config(dropout));
    case Family::roberta:
      return std::make_unique<nn::Bert>(tiny_roberta_config(dropout));
    case Family::bloom:
      return std::make_unique<nn::Bloom>(tiny_bloom_config());
  }
  return nullptr;
}

// make_batch(), and for encoders texts that end early; T5's answers are shorter than the texts.
inline nn::Batch make_batch(Family family, int64_t index, int64_t T = 9) {
  nn::Batch batch = make_batch(index, 2, T);
  if (family != Family::t5 && family != Family::roberta) return batch;
  batch.tensors.set("lengths", Tensor::from<int64_t>({T - index % 4, 5}, {2}, DType::i32));
  if (family != Family::t5) return batch;
  std::vector<int64_t> labels = batch["labels"].to_vector<int64_t>();
  labels.resize(12);
  batch.tensors.set("labels", Tensor::from<int64_t>(labels, {2, 6}, DType::i32));
  batch.num_targets = 0;
  for (const int64_t label : labels) batch.num_targets += label == nn::kIgnoredLabel ? 0 : 1;
  return batch;
}

}  // namespace zinc::zero::test
