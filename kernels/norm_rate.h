// kernels/norm_rate.h: the learning rate of one parameter from sums of squares, in one launch: the
// host need not see the sums before the update is queued.
//
//   r = sqrt(sums[0] / sums[1])       where there are two sums
//   r = sqrt(sums[0] / numel)         where there is one
//   rate = lr * min(max(r, least), most)
//   rate = lr                         where one of two sums is not above 0
//   values = what update_values() gives for the rule sgdw with this rate
//
// In f64 in this order, and rounded once to f32. A NaN of r stays one.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "core/host_device.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct NormRate {
  ConstView sums;  // [1] or [2] f64
  int64_t numel = 1;
  double least = 0.0;
  double most = std::numeric_limits<double>::infinity();
  double lr = 0.0;
  double weight_decay = 0.0;
  uint64_t counter_high = 0;  // ElementUpdate::random
  // [kNormRateGiven] f32 on the device, may be absent: what norm_rate_given() gave; the three
  // members before this one are not read then.
  ConstView given{};
  View values{};  // [num_update_values(sgdw)] f32 | f64, overwrites
};

// The bits of lr, weight_decay and counter_high, low halves first; reads no view.
inline constexpr int64_t kNormRateGiven = 6;
void norm_rate_given(const NormRate& args, std::span<float> given);

// All views contiguous, on one device. Asynchronous on `stream`. Deterministic.
void norm_rate(const NormRate& args, StreamRef stream);
Cost cost(const NormRate& args);

// The definition; for the kernels. `root` is the square root of f64.
template <class Root>
ZINC_HOST_DEVICE inline double norm_rate_of(const double* sums, bool has_two, double numel,
                                            double least, double most, double lr,
                                            const Root& root) {
  if (has_two && !(sums[0] > 0.0 && sums[1] > 0.0)) return lr;
  const double r = root(sums[0] / (has_two ? sums[1] : numel));
  return lr * (r < least ? least : most < r ? most : r);
}

}  // namespace zinc::kernels
