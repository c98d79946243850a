#include "generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/error.h"

namespace zinc::generate {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Beam {
  std::vector<int32_t> tokens;  // the prompt's too
  double log_probability = 0.0;
  int64_t row = 0;  // in the last call
};

struct Continuation {
  size_t beam;
  int32_t token;
  double log_probability;
};

bool better(const Continuation& a, const Continuation& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

std::vector<double> log_probabilities(std::span<const float> logits) {
  double largest = kImpossible;
  for (size_t i = 0; i < logits.size(); ++i) {
    require(!std::isnan(logits[i]) && logits[i] < std::numeric_limits<float>::infinity(),
            "beam search: the logit of token ", i, " is ", logits[i],
            ": the model's weights or activations have overflowed");
    largest = std::max(largest, static_cast<double>(logits[i]));
  }
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double shift = largest + std::log(sum);
  std::vector<double> scores(logits.begin(), logits.end());
  for (double& score : scores) score -= shift;
  return scores;
}

// The search for one prompt.
class Search {
 public:
  Search(std::vector<int32_t> prompt, int64_t row, const GenerateOptions& options)
      : options_(options), prompt_length_(prompt.size()) {
    running_.push_back({.tokens = std::move(prompt), .row = row});
  }

  bool is_open() const { return open_; }
  std::vector<Beam>& running() { return running_; }

  // logits: [rows, V] of the last call.
  void step(std::span<const float> logits, size_t vocabulary) {
    ++length_;
    std::vector<Beam> next;
    const std::vector<Continuation> best = continuations(logits, vocabulary);
    const auto beams = static_cast<size_t>(options_.beams.num_beams);
    const bool takes_more = !is_settled();
    for (size_t i = 0; i < best.size(); ++i) {
      const bool ended = ends(best[i]);
      if (ended && i < beams && takes_more) finish(best[i]);
      if (!ended && length_ < options_.max_tokens && next.size() < beams) {
        next.push_back(running_[best[i].beam]);
        next.back().tokens.push_back(best[i].token);
        next.back().log_probability = best[i].log_probability;
      } else if (!ended && length_ == options_.max_tokens && i < beams && takes_more) {
        finish(best[i]);
      }
    }
    running_ = std::move(next);
    open_ = !running_.empty() && !is_settled() && can_improve();
  }

  GeneratedTexts take() {
    finished_.resize(
        std::min(finished_.size(), static_cast<size_t>(options_.num_return_sequences)));
    return std::move(finished_);
  }

 private:
  std::vector<Continuation> continuations(std::span<const float> logits, size_t vocabulary) const {
    const size_t factor = std::max<size_t>(2, 1 + options_.stop_tokens.size());
    const size_t wanted = factor * static_cast<size_t>(options_.beams.num_beams);
    std::vector<Continuation> best;
    for (size_t b = 0; b < running_.size(); ++b) {
      const Beam& beam = running_[b];
      std::vector<double> scores =
          log_probabilities(logits.subspan(static_cast<size_t>(beam.row) * vocabulary, vocabulary));
      penalize_repetition(scores, beam.tokens, options_.sampling);
      for (size_t t = 0; t < vocabulary; ++t) {
        if (scores[t] == kImpossible) continue;
        best.push_back({b, static_cast<int32_t>(t), beam.log_probability + scores[t]});
      }
      const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, best.size()));
      std::partial_sort(best.begin(), end, best.end(), better);
      best.erase(end, best.end());
    }
    require(!best.empty(), "beam search: every one of ", vocabulary, " tokens is excluded");
    return best;
  }

  std::vector<int32_t> new_tokens(const Continuation& one) const {
    const std::vector<int32_t>& tokens = running_[one.beam].tokens;
    std::vector<int32_t> result(tokens.begin() + static_cast<std::ptrdiff_t>(prompt_length_),
                                tokens.end());
    result.push_back(one.token);
    return result;
  }

  bool is_stop_token(int32_t token) const {
    return std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end();
  }

  bool ends(const Continuation& one) const {
    return is_stop_token(one.token) || (options_.ends && options_.ends(new_tokens(one)));
  }

  double score(double log_probability, int64_t length) const {
    return log_probability / std::pow(static_cast<double>(length), options_.beams.length_penalty);
  }

  // Adds an ended text behind those of the same score, and keeps the best.
  void finish(const Continuation& one) {
    GeneratedText text{.tokens = new_tokens(one),
                       .stopped = ends(one),
                       .score = score(one.log_probability, length_)};
    if (is_stop_token(one.token)) text.tokens.pop_back();
    const auto place = std::ranges::find_if(
        finished_, [&](const GeneratedText& other) { return other.score < text.score; });
    finished_.insert(place, std::move(text));
    if (std::ssize(finished_) > options_.beams.num_beams) finished_.pop_back();
  }

  bool is_full() const { return std::ssize(finished_) == options_.beams.num_beams; }
  bool is_settled() const {
    return is_full() && options_.beams.early_stopping == BeamOptions::EarlyStopping::yes;
  }

  bool can_improve() const {
    if (!is_full()) return true;
    const bool to_the_end = options_.beams.early_stopping == BeamOptions::EarlyStopping::never &&
                            options_.beams.length_penalty > 0.0;
    const int64_t length = to_the_end ? options_.max_tokens : length_;
    return score(running_.front().log_probability, length) > finished_.back().score;
  }

  const GenerateOptions& options_;
  size_t prompt_length_;
  int64_t length_ = 0;         // new tokens of the texts under way
  std::vector<Beam> running_;  // the most likely first
  GeneratedTexts finished_;    // the best first
  bool open_ = true;
};

}  // namespace

std::vector<GeneratedTexts> search_beams(const NextLogits& next_logits,
                                         std::span<const std::vector<int32_t>> prompts,
                                         const GenerateOptions& options) {
  std::vector<Search> searches;
  for (int64_t p = 0; p < std::ssize(prompts); ++p) {
    searches.emplace_back(prompts[static_cast<size_t>(p)], p, options);
  }
  for (int64_t length = 0; length < options.max_tokens; ++length) {
    std::vector<OpenText> asked;
    for (Search& search : searches) {
      if (!search.is_open()) continue;
      for (Beam& beam : search.running()) {
        const auto seen = std::min(std::ssize(beam.tokens), options.context);
        asked.push_back(
            {.tokens = std::span(beam.tokens).last(static_cast<size_t>(seen)), .parent = beam.row});
        beam.row = std::ssize(asked) - 1;
      }
    }
    if (asked.empty()) break;
    const Tensor logits = next_logits(asked);
    const std::vector<float> values = logits.to_vector<float>();
    for (Search& search : searches) {
      if (search.is_open()) search.step(values, static_cast<size_t>(logits.dim(1)));
    }
  }
  std::vector<GeneratedTexts> texts;
  for (Search& search : searches) {
    texts.push_back(search.take());
    if (texts.back().empty()) texts.back().push_back({});  // max_tokens is 0
  }
  return texts;
}

}  // namespace zinc::generate
