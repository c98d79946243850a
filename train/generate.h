// train/generate.h: text from a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tensor/tensor.h"
#include "train/sampling.h"
#include "zero/engine.h"

namespace zinc::train {

struct GenerateOptions {
  int64_t max_tokens = 256;  // new ones, >= 0
  SamplingOptions sampling{};
  uint64_t seed = 0;
  std::optional<int32_t> stop_token;  // ends the text; not part of it
  int64_t context = 0;                // the model sees at most so many tokens, > 0
  // Given all new tokens after each: true ends the text. May be empty.
  std::function<bool(std::span<const int32_t>)> ends{};
};

// ids [1, T] i32 -> logits [1, V], float, of the next token.
using NextLogits = std::function<Tensor(const Tensor& ids)>;

// The new tokens. `prompt` has at least one token; only its last `context` tokens are seen.
// `on_token` (may be empty) is told each as it comes. A function of its arguments alone.
std::vector<int32_t> generate(const NextLogits& next_logits, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});
// By the engine's model, an nn::CausalLm; an nn::CachedCausalLm keeps keys and values. The encoder
// of an nn::EncoderDecoderLm reads the prompt, and the new tokens are the decoder's answer. Where
// parameters are sharded (stage 3) collective, with the same prompt and options on every rank.
// `options.context` 0: the model's longest sequence, or all where it has none; of an encoder the
// whole prompt.
std::vector<int32_t> generate(zero::Engine& engine, std::span<const int32_t> prompt,
                              GenerateOptions options = {},
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace zinc::train
