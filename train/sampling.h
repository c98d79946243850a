// train/sampling.h: choosing the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/philox.h"

namespace zinc::train {

// Named as in transformers' generate(), and applied in its order: that of the members.
struct SamplingOptions {
  // Logits of tokens that the text has already are divided by it where positive, else multiplied
  // (Keskar et al. 2019, "CTRL", section 4.1); 1: they stay.
  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;  // no row of so many tokens comes twice in a text; 0: any may
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

// The random numbers of token `position` of a generation; `sequence`: of several from one prompt.
inline RandomKey sampling_key(uint64_t seed, int64_t position, int64_t sequence = 0) {
  return make_random_key(seed, Purpose::sampling, static_cast<uint64_t>(position),
                         static_cast<uint64_t>(sequence), 0);
}

// Repetition penalty and n-grams, on the scores [vocabulary] of the token behind `text`: prompt
// and new tokens. A token that may not come gets -inf.
void penalize_repetition(std::span<double> scores, std::span<const int32_t> text,
                         const SamplingOptions& options);

struct Candidate {
  int32_t token;
  double probability;
};
// The tokens that may come behind `text`, ascending, with probabilities that sum to 1; one alone
// with temperature 0. logits: [vocabulary], -inf excludes a token. Of equal logits the lower token
// is the more likely one. In f64; a pure function of its arguments. Throws InvalidArgument where a
// logit is NaN or +inf, or none is left.
std::vector<Candidate> kept_tokens(std::span<const float> logits, std::span<const int32_t> text,
                                   const SamplingOptions& options);

// One of the kept tokens, with its probability.
int32_t sample_token(std::span<const float> logits, std::span<const int32_t> text,
                     const SamplingOptions& options, const RandomKey& key);

}  // namespace zinc::train
