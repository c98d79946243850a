// train/beam_search.h: the most likely texts, by a search over several at once.
#pragma once

#include <span>
#include <vector>

#include "train/generate.h"

namespace zinc::train {

// The rules of transformers' generate() with num_beams > 1. A prompt's num_beams texts go on side
// by side: of their continuations those of the largest log-probability, max(2, 1 + stop tokens)
// times num_beams, are looked at. A stop token, options.ends or max_tokens ends a text; it counts
// where it is one of the first num_beams, and the num_beams of the best score are kept (see
// BeamOptions). The others go on. Repetition penalty and n-grams work on log-probabilities.
//
// In f64; of equal continuations the one of the earlier text, then of the lower token. As
// generate(), which checks the arguments.
std::vector<GeneratedTexts> search_beams(const NextLogits& next_logits,
                                         std::span<const std::vector<int32_t>> prompts,
                                         const GenerateOptions& options);

}  // namespace zinc::train
