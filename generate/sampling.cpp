#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace zinc::generate {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

// A token that is still there. The weight is its probability times a common factor.
struct Kept {
  int32_t token;
  double score;  // the logit's distance to the largest one, through the temperature
  double weight;
};
using KeptTokens = std::vector<Kept>;  // ascending tokens

bool more_likely(const Kept& a, const Kept& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

double total_weight(const KeptTokens& kept) {
  double total = 0.0;
  for (const Kept& one : kept) total += one.weight;
  return total;
}

// Checks the scores and returns the index of the first largest one. Without finite scores it is 0,
// which is then excluded.
size_t check_logits(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  size_t best = 0;
  float largest = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= largest) continue;
    require(logits[i] < kInfinity, "sampling: the logit of token ", i, " is ", logits[i],
            ": the model's weights or activations have overflowed");
    largest = logits[i];
    best = i;
  }
  return best;
}

bool looks_at_text(const SamplingOptions& options) {
  return options.repetition_penalty != 1.0 || options.no_repeat_ngram_size > 0;
}

// 53 uniform bits in [0, 1).
double uniform53(const RandomKey& key) {
  const uint64_t bits = (uint64_t{key.bits(0)} << 32) | key.bits(1);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void keep_top_k(KeptTokens& kept, int64_t k) {
  if (k >= std::ssize(kept)) return;
  KeptTokens ordered = kept;
  const auto last = ordered.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(ordered.begin(), last, ordered.end(), more_likely);
  const double least = last->score;
  std::erase_if(kept, [&](const Kept& one) { return one.score < least; });
}

void in_order_of_tokens(KeptTokens& kept) {
  std::ranges::sort(kept, std::less<>(), [](const Kept& one) { return one.token; });
}

// The shortest prefix, most likely first, that holds `p` of the weight.
void keep_nucleus(KeptTokens& kept, double p) {
  std::ranges::sort(kept, more_likely);
  const double wanted = p * total_weight(kept);
  double sum = 0.0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || sum < wanted)) sum += kept[count++].weight;
  kept.resize(count);
  in_order_of_tokens(kept);
}

void keep_min_p(KeptTokens& kept, double p) {
  double largest = 0.0;
  for (const Kept& one : kept) largest = std::max(largest, one.weight);
  std::erase_if(kept, [&](const Kept& one) { return one.weight < p * largest; });
}

// Information -log(probability) closest to its mean first, until they hold `p` of the weight, and
// all that are as close as the last.
void keep_typical(KeptTokens& kept, double p) {
  const double total = total_weight(kept);
  const auto information = [&](const Kept& one) { return std::log(total) - one.score; };
  double entropy = 0.0;
  for (const Kept& one : kept) {
    if (one.weight > 0.0) entropy += one.weight / total * information(one);
  }
  const auto distance = [&](const Kept& one) { return std::abs(information(one) - entropy); };
  std::ranges::stable_sort(kept, std::less<>(), distance);
  double sum = 0.0;
  size_t last = 0;
  while (last + 1 < kept.size() && sum + kept[last].weight < p * total) sum += kept[last++].weight;
  const double furthest = distance(kept[last]);
  while (last + 1 < kept.size() && distance(kept[last + 1]) <= furthest) ++last;
  kept.resize(last + 1);
  in_order_of_tokens(kept);
}

}  // namespace

void validate(const SamplingOptions& options) {
  const auto check = [](bool condition, std::string_view text, auto value) {
    if (!condition) throw ConfigError(str("sampling: ", text, ", not ", value));
  };
  check(options.repetition_penalty > 0.0 && std::isfinite(options.repetition_penalty),
        "repetition_penalty must be a number > 0", options.repetition_penalty);
  check(options.no_repeat_ngram_size >= 0, "no_repeat_ngram_size must be >= 0",
        options.no_repeat_ngram_size);
  check(options.temperature >= 0.0 && std::isfinite(options.temperature),
        "temperature must be a number >= 0", options.temperature);
  check(options.top_k >= 0, "top_k must be >= 0", options.top_k);
  check(options.top_p >= 0.0 && options.top_p <= 1.0, "top_p must lie in [0, 1]", options.top_p);
  check(options.min_p >= 0.0 && options.min_p <= 1.0, "min_p must lie in [0, 1]", options.min_p);
  check(options.typical_p > 0.0 && options.typical_p <= 1.0, "typical_p must lie in (0, 1]",
        options.typical_p);
}

void penalize_repetition(std::span<double> scores, std::span<const int32_t> text,
                         const SamplingOptions& options) {
  const auto score_of = [&](int32_t token) -> double* {
    const bool has_score = token >= 0 && token < std::ssize(scores);
    return has_score ? &scores[static_cast<size_t>(token)] : nullptr;
  };
  if (options.repetition_penalty != 1.0) {
    std::vector<int32_t> seen(text.begin(), text.end());
    std::ranges::sort(seen);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int32_t token : seen) {
      double* const score = score_of(token);
      if (score == nullptr) continue;
      *score =
          *score < 0.0 ? *score * options.repetition_penalty : *score / options.repetition_penalty;
    }
  }
  const auto n = static_cast<size_t>(options.no_repeat_ngram_size);
  if (n == 0 || text.size() < n) return;
  const std::span<const int32_t> front = text.last(n - 1);
  for (size_t i = 0; i + n <= text.size(); ++i) {
    if (!std::ranges::equal(text.subspan(i, n - 1), front)) continue;
    if (double* const score = score_of(text[i + n - 1])) *score = kExcluded;
  }
}

std::vector<Candidate> kept_tokens(std::span<const float> logits, std::span<const int32_t> text,
                                   const SamplingOptions& options) {
  validate(options);
  const size_t largest_logit = check_logits(logits);
  const auto require_one = [&](bool is_there) {
    require(is_there, "sampling: every one of ", logits.size(), " tokens is excluded");
  };
  const auto best_of = [&](const auto& scores, size_t best) -> std::vector<Candidate> {
    require_one(best < scores.size() && scores[best] != kExcluded);
    return {{.token = static_cast<int32_t>(best), .probability = 1.0}};
  };
  if (options.temperature == 0.0 && !looks_at_text(options)) return best_of(logits, largest_logit);
  std::vector<double> scores(logits.begin(), logits.end());
  penalize_repetition(scores, text, options);
  if (options.temperature == 0.0) {
    const auto best = std::ranges::max_element(scores);  // the first of the largest
    return best_of(scores, static_cast<size_t>(best - scores.begin()));
  }
  KeptTokens kept;
  kept.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] != kExcluded) kept.push_back({static_cast<int32_t>(i), scores[i], 0.0});
  }
  require_one(!kept.empty());
  const double largest = std::ranges::max_element(kept, {}, &Kept::score)->score;
  for (Kept& one : kept) {
    one.score = (one.score - largest) / options.temperature;
    one.weight = std::exp(one.score);
  }
  if (options.top_k > 0) keep_top_k(kept, options.top_k);
  if (options.top_p < 1.0) keep_nucleus(kept, options.top_p);
  if (options.min_p > 0.0) keep_min_p(kept, options.min_p);
  if (options.typical_p < 1.0) keep_typical(kept, options.typical_p);
  const double total = total_weight(kept);
  std::vector<Candidate> candidates;
  candidates.reserve(kept.size());
  for (const Kept& one : kept) candidates.push_back({one.token, one.weight / total});
  return candidates;
}

int32_t sample_token(std::span<const float> logits, std::span<const int32_t> text,
                     const SamplingOptions& options, const RandomKey& key) {
  const std::vector<Candidate> candidates = kept_tokens(logits, text, options);
  const double threshold = uniform53(key);
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.probability;
    if (threshold < sum) return candidate.token;
  }
  return candidates.back().token;  // rounding left a gap below 1
}

}  // namespace zinc::generate
