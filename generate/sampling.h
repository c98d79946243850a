// generate/sampling.h: chooses the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/philox.h"

namespace zinc::generate {

// Named as in transformers' generate(). Members apply in this order, which is transformers' too.
struct SamplingOptions {
  // Logits of tokens that the text already contains are divided by it if positive, otherwise
  // multiplied (Keskar et al. 2019, "CTRL", section 4.1). 1: no change.
  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;  // no n-gram of this size comes twice in a text; 0: off
  double temperature = 1.0;          // logits are divided by it; 0: the most likely token (greedy)
  int64_t top_k = 0;                 // only the k most likely, and those equal to the last; 0: all
  double top_p = 1.0;      // only the fewest most likely that together reach this probability;
                           // the most likely one always stays (Holtzman et al., ICLR 2020)
  double min_p = 0.0;      // only those with this share of the most likely one's probability
  double typical_p = 1.0;  // only those closest to the expected information that together reach
                           // this probability (Meister et al. 2023, "Locally typical sampling")
};

// Throws ConfigError: repetition_penalty and typical_p > 0 and finite, temperature >= 0 and finite,
// no_repeat_ngram_size and top_k >= 0, top_p and min_p in [0, 1], typical_p at most 1.
void validate(const SamplingOptions& options);

// The random numbers of token `position` of a generation. `sequence`: which of several texts for
// one prompt.
inline RandomKey sampling_key(uint64_t seed, int64_t position, int64_t sequence = 0) {
  return make_random_key(seed, Purpose::sampling, static_cast<uint64_t>(position),
                         static_cast<uint64_t>(sequence), 0);
}

// Applies repetition penalty and n-grams to the scores [vocabulary] of the token behind `text`,
// which is prompt and new tokens. A token that is not allowed gets -inf.
void penalize_repetition(std::span<double> scores, std::span<const int32_t> text,
                         const SamplingOptions& options);

struct Candidate {
  int32_t token;
  double probability;
};
// The tokens that may follow `text`, ascending, with probabilities that sum to 1; with temperature
// 0 one token. logits: [vocabulary]; -inf excludes a token. With equal logits the lower token
// counts as the more likely one. Computes in f64; a pure function of its arguments. Throws
// InvalidArgument if a logit is NaN or +inf, or no token is left.
std::vector<Candidate> kept_tokens(std::span<const float> logits, std::span<const int32_t> text,
                                   const SamplingOptions& options);

// Draws one of the kept tokens with their probabilities.
int32_t sample_token(std::span<const float> logits, std::span<const int32_t> text,
                     const SamplingOptions& options, const RandomKey& key);

}  // namespace zinc::generate
