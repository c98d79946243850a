// text/scores/labels.h: figures of predicted labels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace zinc::text {

// Share of places where both are equal, in [0, 1]; 0 of none. Throws InvalidArgument where the
// lengths differ, as all of these.
double accuracy(std::span<const int64_t> references, std::span<const int64_t> predictions);
double exact_match(std::span<const std::string> references,
                   std::span<const std::string> predictions);

// Harmonic mean of precision and recall, as scikit-learn defines it; 0 where both are 0.
double f1_binary(std::span<const int64_t> references, std::span<const int64_t> predictions,
                 int64_t positive = 1);
// F1 over all labels that occur in either. micro: from the sums of their counts. macro: the mean of
// their F1.
double f1_micro(std::span<const int64_t> references, std::span<const int64_t> predictions);
double f1_macro(std::span<const int64_t> references, std::span<const int64_t> predictions);

// exp(loss), where the loss is the mean over all target tokens, in nats.
double perplexity(double mean_loss);

}  // namespace zinc::text
