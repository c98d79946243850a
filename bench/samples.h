// bench/samples.h: durations of repeated runs and their statistics.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace zinc::bench {

template <class Body>
double seconds_of(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  size_t count() const { return values_.size(); }
  double last() const { return values_.back(); }
  double total_seconds() const {
    double sum = 0.0;
    for (const double v : values_) sum += v;
    return sum;
  }
  // The smallest value that at least this share of the values does not exceed; 0 without samples.
  double quantile(double share) const {
    if (values_.empty()) return 0.0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
    return sorted[std::min(at, sorted.size() - 1)];
  }
  double median() const { return quantile(0.5); }
  double minimum() const { return quantile(0.0); }
  // Half the interquartile range, relative to the median.
  double noise() const {
    return values_.empty() ? 0.0 : 0.5 * (quantile(0.75) - quantile(0.25)) / median();
  }

 private:
  std::vector<double> values_;
};

}  // namespace zinc::bench
