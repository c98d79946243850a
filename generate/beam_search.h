// generate/beam_search.h: the most likely texts, by a search over several at once.
#pragma once

#include <span>
#include <vector>

#include "generate/generate.h"

namespace zinc::generate {

// Beam search by the rules of transformers' generate() with num_beams > 1. The num_beams texts of a
// prompt continue side by side. In each step the search looks at the max(2, 1 + stop tokens) *
// num_beams continuations of the largest log-probability. A stop token, options.ends or max_tokens
// ends a text. An ended text counts if it is among the first num_beams continuations. The num_beams
// texts of the best score are kept (see BeamOptions); the others continue. Repetition penalty and
// n-grams work on log-probabilities.
//
// Computes in f64. Among equal continuations the one of the earlier text comes first, then the
// lower token. Checks its arguments as generate() does.
std::vector<GeneratedTexts> search_beams(const NextLogits& next_logits,
                                         std::span<const std::vector<int32_t>> prompts,
                                         const GenerateOptions& options);

}  // namespace zinc::generate
