#include "text/scores/labels.h"

#include <cmath>
#include <map>

#include "core/error.h"

namespace zinc::text {
namespace {

struct Counts {
  int64_t hits = 0, predicted = 0, real = 0;
  double f1() const {
    return predicted + real == 0
               ? 0.0
               : 2.0 * static_cast<double>(hits) / static_cast<double>(predicted + real);
  }
};

template <class T>
void require_pairs(std::span<const T> references, std::span<const T> predictions) {
  require(references.size() == predictions.size(), "scores: ", predictions.size(),
          " predictions for ", references.size(), " references");
}

template <class T>
double share_of_equals(std::span<const T> references, std::span<const T> predictions) {
  require_pairs(references, predictions);
  if (references.empty()) return 0.0;
  int64_t equal = 0;
  for (size_t i = 0; i < references.size(); ++i) equal += references[i] == predictions[i] ? 1 : 0;
  return static_cast<double>(equal) / static_cast<double>(references.size());
}

std::map<int64_t, Counts> counts_of(std::span<const int64_t> references,
                                    std::span<const int64_t> predictions) {
  require_pairs(references, predictions);
  std::map<int64_t, Counts> counts;
  for (size_t i = 0; i < references.size(); ++i) {
    ++counts[references[i]].real;
    ++counts[predictions[i]].predicted;
    if (references[i] == predictions[i]) ++counts[references[i]].hits;
  }
  return counts;
}

}  // namespace

double accuracy(std::span<const int64_t> references, std::span<const int64_t> predictions) {
  return share_of_equals(references, predictions);
}

double exact_match(std::span<const std::string> references,
                   std::span<const std::string> predictions) {
  return share_of_equals(references, predictions);
}

double f1_binary(std::span<const int64_t> references, std::span<const int64_t> predictions,
                 int64_t positive) {
  return counts_of(references, predictions)[positive].f1();
}

double f1_micro(std::span<const int64_t> references, std::span<const int64_t> predictions) {
  Counts all;
  for (const auto& [label, counts] : counts_of(references, predictions)) {
    all.hits += counts.hits;
    all.predicted += counts.predicted;
    all.real += counts.real;
  }
  return all.f1();
}

double f1_macro(std::span<const int64_t> references, std::span<const int64_t> predictions) {
  const std::map<int64_t, Counts> counts = counts_of(references, predictions);
  if (counts.empty()) return 0.0;
  double sum = 0.0;
  for (const auto& [label, of_label] : counts) sum += of_label.f1();
  return sum / static_cast<double>(counts.size());
}

double perplexity(double mean_loss) { return std::exp(mean_loss); }

}  // namespace zinc::text
