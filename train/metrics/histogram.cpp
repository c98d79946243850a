#include "train/metrics/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace zinc::train {
namespace {

// Exponent and two bits of the mantissa of an f32: four steps to an octave.
constexpr int kDroppedBits = 21;
constexpr int kBias = 127;
constexpr int kSmallest = (kBias - 40) * 4;  // 2^-40
constexpr int kLargest = (kBias + 60) * 4;   // 2^60
constexpr int kOfASign = kHistogramBuckets / 2;
static_assert(kOfASign == kLargest - kSmallest + 2);

int bucket_of(float value) {
  const auto steps = static_cast<int>(std::bit_cast<uint32_t>(std::fabs(value)) >> kDroppedBits);
  const int magnitude = std::clamp(steps, kSmallest - 1, kLargest) - (kSmallest - 1);
  return value < 0.0f ? kOfASign - 1 - magnitude : kOfASign + magnitude;
}

// The lower bound of the bucket of this magnitude.
double begin_of(int magnitude) {
  if (magnitude == 0) return 0.0;
  if (magnitude == kOfASign) return std::numeric_limits<double>::max();
  return std::bit_cast<float>(static_cast<uint32_t>(magnitude + kSmallest - 1) << kDroppedBits);
}

template <class T>
void add_values(Histogram& histogram, const T* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = values[i];
    if (!std::isfinite(value)) continue;
    ++histogram.counts[static_cast<size_t>(bucket_of(static_cast<float>(value)))];
    const auto wide = static_cast<double>(value);
    ++histogram.count;
    histogram.sum += wide;
    histogram.sum_of_squares += wide * wide;
    histogram.least = std::min(histogram.least, wide);
    histogram.most = std::max(histogram.most, wide);
  }
}

}  // namespace

void Histogram::add(const ConstView& values) {
  if (values.dtype() == DType::f64)
    return add_values(*this, values.data_as<double>(), values.numel());
  add_values(*this, values.data_as<float>(), values.numel());
}

void Histogram::add(const Histogram& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  count += other.count;
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
}

double bucket_end(int bucket) {
  if (bucket < kOfASign) return 0.0 - begin_of(kOfASign - 1 - bucket);
  return begin_of(bucket - kOfASign + 1);
}

}  // namespace zinc::train
