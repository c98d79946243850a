// train/sampling.h: choosing the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>

#include "core/philox.h"

namespace zinc::train {

struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: the most likely token (greedy)
  int64_t top_k = 0;         // only the k most likely; 0: all
  double top_p = 1.0;        // only the fewest most likely that together reach this probability;
                             // the most likely one always stays (Holtzman et al., ICLR 2020)
};

// Throws ConfigError: temperature >= 0 and finite, top_k >= 0, 0 <= top_p <= 1.
void validate(const SamplingOptions& options);

// The random numbers of token `position` of a generation.
inline RandomKey sampling_key(uint64_t seed, int64_t position) {
  return make_random_key(seed, Purpose::sampling, static_cast<uint64_t>(position), 0, 0);
}

// One token. logits: [vocabulary], -inf excludes a token. Applied in the order temperature, top_k,
// top_p; of equal logits the lower token is the more likely one. In f64; a pure function of its
// arguments. Throws InvalidArgument where a logit is NaN or +inf, or none is left.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     const RandomKey& key);

}  // namespace zinc::train
