// generate/generate.h: writes texts with a model, token by token: the most likely tokens, tokens
// drawn at random, or the best texts of a beam search.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/sampling.h"
#include "tensor/tensor.h"
#include "zero/engine.h"

namespace zinc::generate {

// Named as in transformers' generate().
struct BeamOptions {
  int64_t num_beams = 1;        // 1: no beam search
  double length_penalty = 1.0;  // a text's score: its log-probability / (new tokens ^ this)
  // When a prompt's search ends, apart from max_tokens:
  // - yes: when the first num_beams texts have ended
  // - no: when no open text can get a better score at its present length
  // - never: when no open text can get a better score at any length up to max_tokens
  enum class EarlyStopping : uint8_t { no, yes, never };
  EarlyStopping early_stopping = EarlyStopping::no;
};

constexpr int64_t kMostNewTokens = int64_t{1} << 31;

struct GenerateOptions {
  int64_t max_tokens = 256;  // new tokens, in [0, kMostNewTokens]
  SamplingOptions sampling{};
  uint64_t seed = 0;  // for the first prompt; each further prompt has the next seed
  std::vector<int32_t> stop_tokens{};  // each ends a text; not part of it
  // The most tokens that the model sees. 0: its longest sequence, or all tokens if it has none; a
  // longer prompt is an error then. For an encoder: tokens of the prompt.
  int64_t context = 0;
  // Called after each token with all new tokens of the text; true ends the text. May be empty.
  std::function<bool(std::span<const int32_t>)> ends{};
  BeamOptions beams{};
  int64_t cache_limit = 0;           // bytes that keys and values may take; 0: what memory holds
  int64_t num_return_sequences = 1;  // texts for each prompt; at most num_beams where that is not 1
};

// Throws ConfigError, by name.
void validate(const GenerateOptions& options);

struct GeneratedText {
  std::vector<int32_t> tokens;  // the new tokens
  bool stopped = false;         // ended by a stop token or options.ends, not by max_tokens
  double score = 0.0;           // in a beam search; see BeamOptions
};
// The texts of one prompt; in a beam search the best first.
using GeneratedTexts = std::vector<GeneratedText>;

// A text that continues. `parent`: its row in the last call; in the first call the prompt's number.
struct OpenText {
  std::span<const int32_t> tokens;  // at least one
  int64_t parent = 0;
};
// The logits [B, V], float, of the token behind each of the B texts.
using NextLogits = std::function<Tensor(std::span<const OpenText> texts)>;

// Called with each token of a prompt's first text. In a beam search: called at its end.
using OnToken = std::function<void(int64_t prompt, int32_t token)>;

// Writes texts for prompts of one or more tokens. The last `options.context` (> 0) tokens of a text
// are seen. Each call of next_logits has the texts that have not ended; the first call has each
// prompt once. A text does not depend on the other prompts, except for rounding of their logits. A
// pure function of its arguments.
std::vector<GeneratedTexts> generate_tokens(const NextLogits& next_logits,
                                            std::span<const std::vector<int32_t>> prompts,
                                            const GenerateOptions& options,
                                            const OnToken& on_token = {});

// The new tokens of one text by the engine's model; see TextGenerator. If parameters are sharded
// (stage 3): collective, with the same prompt and options on every rank.
std::vector<int32_t> generate_tokens(zero::Engine& engine, std::span<const int32_t> prompt,
                                     GenerateOptions options = {},
                                     const std::function<void(int32_t)>& on_token = {});

}  // namespace zinc::generate
