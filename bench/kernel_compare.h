// bench/kernel_compare.h: two runs of the kernel bench, before and after a change.
#pragma once

#include <string>
#include <vector>

#include "bench/kernel_bench.h"

namespace zinc::bench {

struct CompareOptions {
  double smallest_percent = 3.0;  // changes below it are noise whatever the samples say
  // Compare shares of the ceiling, measured beside each kernel, instead of times: for runs on a
  // machine that was not the same all the time. Entries without a ceiling are compared by time.
  bool by_ceiling = false;
};

enum class Verdict : uint8_t { same, faster, slower, only_before, only_after, now_wrong };
std::string_view name_of(Verdict verdict);

struct Comparison {
  std::string name;  // "op pass dtype shape", with the device
  double before_us = 0.0, after_us = 0.0;
  double change_percent = 0.0;     // positive: slower
  double threshold_percent = 0.0;  // above this it counts as a change
  Verdict verdict = Verdict::same;
};

// Rows match by name, device and cache state. A change counts above
//   max(smallest_percent, 3 sqrt(noise_before^2 + noise_after^2)),
// noise being half the interquartile range over the median: three times that of a difference of
// medians is beyond 4 standard deviations of normally distributed samples.
std::vector<Comparison> compare(const KernelReport& before, const KernelReport& after,
                                const CompareOptions& options = {});
// A kernel is slower or deviates now.
bool has_regression(const std::vector<Comparison>& comparisons);
std::string table_of(const std::vector<Comparison>& comparisons);

}  // namespace zinc::bench
