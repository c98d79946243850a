#include "bench/kernel_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace zinc::bench {
namespace {

std::string key_of(const KernelResult& r) {
  return fmt::format("{} {}{}", r.name(), r.device, r.cold ? "" : " warm");
}

Comparison compare(const KernelResult& before, const KernelResult& after,
                   const CompareOptions& options) {
  Comparison c{.name = key_of(before), .before_us = before.median_us, .after_us = after.median_us};
  const bool by_ceiling = options.by_ceiling && !before.ceiling.empty() && !after.ceiling.empty();
  const double ratio = by_ceiling ? before.percent_of_ceiling / after.percent_of_ceiling
                                  : after.median_us / before.median_us;
  c.change_percent = 100.0 * (ratio - 1.0);
  c.threshold_percent = std::max(options.smallest_percent,
                                 3.0 * std::hypot(before.noise_percent, after.noise_percent));
  if (before.verified() && !after.verified()) {
    c.verdict = Verdict::now_wrong;
  } else if (!(c.change_percent <= c.threshold_percent)) {  // also if it is no number
    c.verdict = Verdict::slower;
  } else if (c.change_percent < -c.threshold_percent) {
    c.verdict = Verdict::faster;
  }
  return c;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::only_before:
      return "only before";
    case Verdict::only_after:
      return "only after";
    case Verdict::now_wrong:
      return "WRONG NOW";
  }
  return "?";
}

std::vector<Comparison> compare(const KernelReport& before, const KernelReport& after,
                                const CompareOptions& options) {
  std::map<std::string, const KernelResult*> old;
  for (const KernelResult& result : before.results) old[key_of(result)] = &result;
  std::vector<Comparison> comparisons;
  for (const KernelResult& result : after.results) {
    const auto found = old.find(key_of(result));
    if (found == old.end()) {
      comparisons.push_back(
          {.name = key_of(result), .after_us = result.median_us, .verdict = Verdict::only_after});
      continue;
    }
    comparisons.push_back(compare(*found->second, result, options));
    old.erase(found);
  }
  for (const auto& [name, result] : old) {
    comparisons.push_back(
        {.name = name, .before_us = result->median_us, .verdict = Verdict::only_before});
  }
  return comparisons;
}

bool has_regression(const std::vector<Comparison>& comparisons) {
  return std::any_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) {
    return c.verdict == Verdict::slower || c.verdict == Verdict::now_wrong;
  });
}

std::string table_of(const std::vector<Comparison>& comparisons) {
  std::string text = fmt::format("{:<84} {:>11} {:>11} {:>8} {:>9}  {}\n", "kernel", "before us",
                                 "after us", "change", "threshold", "verdict");
  for (const Comparison& c : comparisons) {
    text +=
        fmt::format("{:<84} {:>11.1f} {:>11.1f} {:>+7.1f}% {:>8.1f}%  {}\n", c.name, c.before_us,
                    c.after_us, c.change_percent, c.threshold_percent, name_of(c.verdict));
  }
  return text;
}

}  // namespace zinc::bench
