// bench/generate_bench.h: how fast a preset reads prompts and writes texts, beside the memory that
// its weights come from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/samples.h"
#include "comm/world.h"
#include "core/dtype.h"

namespace zinc::bench {

struct GenerateBenchOptions {
  std::string preset = "gpt2-124m";
  DType dtype = DType::bf16;
  int64_t prompt_tokens = 512;
  int64_t tokens = 33;               // new ones of each text; the first is of the prompt's pass
  std::vector<int64_t> batch{1, 8};  // texts side by side; they take turns
  int64_t rounds = 5;                // timed; one more warms up
};

struct WrittenTexts {
  int64_t batch = 0;
  Samples prefill_seconds{};  // up to the first token, of each round
  Samples decode_seconds{};   // the others
  // The following are computed from the medians.
  double prefill_tokens_per_second = 0.0;
  double decode_tokens_per_second = 0.0;  // of all texts together
  // Bytes of weights that decoding reads per second, and their ratio to the stream probe's bytes.
  double weight_bytes_per_second = 0.0;
  double stream_share = 0.0;
};

struct GenerateBenchResult {
  std::vector<WrittenTexts> batches;     // in the order of the options
  double weight_bytes = 0.0;             // weights that are multiplied with a token
  double stream_bytes_per_second = 0.0;  // reads alone; median of probes between the rounds
};

struct GenerateBenchHooks {
  std::function<void()> before_round;  // before each batch of each round, the untimed ones too
  std::function<void(const WrittenTexts& texts)> after_round;  // after each timed round
};

// Random weights and prompts; the most likely token each time, with the cache of keys and values.
// ConfigError for a model that is no decoder, or has too few positions.
GenerateBenchResult run_generate_bench(comm::World& world, const GenerateBenchOptions& options,
                                       const GenerateBenchHooks& hooks = {});
std::string json_of(const GenerateBenchOptions& options, const GenerateBenchResult& result);

}  // namespace zinc::bench
