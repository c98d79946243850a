// train/metrics/histogram.h: the number of a parameter's values in each bucket.
//
// The buckets are the same for all parameters, runs and ranks, so that histograms add up. Each sign
// has one bucket below 2^-40, four for each octave up to 2^60, and one above.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/view.h"

namespace zinc::train {

inline constexpr int kHistogramBuckets = 2 * 402;

struct Histogram {
  std::string name;
  // Whole numbers, in ascending order of the values; bucket i ends at bucket_end(i).
  std::vector<double> counts = std::vector<double>(kHistogramBuckets);
  double count = 0.0, sum = 0.0, sum_of_squares = 0.0;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  // `values`: [n] f32 or f64, in host memory. NaN and infinities are left out.
  void add(const ConstView& values);
  // Adds the values of another histogram.
  void add(const Histogram& other);
};

// The upper end of a bucket; for the last one, the largest double.
double bucket_end(int bucket);

}  // namespace zinc::train
