// bench/samples.h: durations of repeated runs and their statistics.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace zinc::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}
inline double seconds_since(Clock::time_point begin) {
  return seconds_between(begin, Clock::now());
}

template <class Body>
double seconds_of(Body&& body) {
  const auto begin = Clock::now();
  body();
  return seconds_since(begin);
}

// Between the two nearest values as numpy.quantile gives it: the median of an even number of values
// is the mean of the middle two. `share` in [0, 1]. 0 without values.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

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
  double quantile(double share) const { return bench::quantile(values_, share); }
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
