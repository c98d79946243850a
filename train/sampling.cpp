#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"

namespace zinc::train {
namespace {

struct Candidate {
  int32_t token;
  double weight;  // the logit, then exp of its distance to the largest one
};

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

std::vector<Candidate> possible_tokens(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    require(!(std::isnan(logits[i]) || logits[i] == kInfinity), "sampling: the logit of token ", i,
            " is ", logits[i], ": the model's weights or activations have overflowed");
    if (logits[i] == -kInfinity) continue;
    candidates.push_back({static_cast<int32_t>(i), static_cast<double>(logits[i])});
  }
  require(!candidates.empty(), "sampling: every one of ", logits.size(), " tokens is excluded");
  return candidates;
}

// 53 uniform bits in [0, 1).
double uniform53(const RandomKey& key) {
  const uint64_t bits = (uint64_t{key.bits(0)} << 32) | key.bits(1);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Keeps the shortest prefix of the ordered candidates that holds `p` of the weight.
void keep_nucleus(std::vector<Candidate>& candidates, double p) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  double sum = 0.0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < p * total)) {
    sum += candidates[kept++].weight;
  }
  candidates.resize(kept);
}

}  // namespace

void validate(const SamplingOptions& options) {
  const auto check = [](bool condition, std::string_view text, auto value) {
    if (!condition) throw ConfigError(concat("sampling: ", text, ", not ", value));
  };
  check(options.temperature >= 0.0 && std::isfinite(options.temperature),
        "temperature must be a number >= 0", options.temperature);
  check(options.top_k >= 0, "top_k must be >= 0", options.top_k);
  check(options.top_p >= 0.0 && options.top_p <= 1.0, "top_p must lie in [0, 1]", options.top_p);
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     const RandomKey& key) {
  validate(options);
  std::vector<Candidate> candidates = possible_tokens(logits);
  const auto best = std::min_element(candidates.begin(), candidates.end(), more_likely);
  if (options.temperature == 0.0) return best->token;
  const double largest = best->weight;

  const bool nucleus = options.top_p < 1.0;
  size_t kept = candidates.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  if (nucleus || kept < candidates.size()) {
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                      candidates.end(), more_likely);
    candidates.resize(kept);
  }
  double total = 0.0;
  for (Candidate& candidate : candidates) {
    candidate.weight = std::exp((candidate.weight - largest) / options.temperature);
  }
  if (nucleus) keep_nucleus(candidates, options.top_p);
  for (const Candidate& candidate : candidates) total += candidate.weight;

  const double threshold = uniform53(key) * total;
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (threshold < sum) return candidate.token;
  }
  return candidates.back().token;  // rounding left a gap below `total`
}

}  // namespace zinc::train
