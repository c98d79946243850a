#include "apps/plan_verdict.h"

#include <fmt/format.h>

namespace zinc::apps {

std::string verdict(const train::Plan& plan, const train::ModelConfigFile& model,
                    const train::Config& config, int64_t available_bytes, int ranks_per_host) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  const int64_t share = available_bytes / ranks_per_host;
  // Segments are what the system sees; a run reserves a little more than it hands out.
  const int64_t peak = plan.fullest.peaks.reserved[static_cast<size_t>(Tier::device)].peak;
  const std::string machine = fmt::format(
      "this machine has {:.0f} MiB free, {:.0f} for each of {} "
      "ranks",
      mib(available_bytes), mib(share), ranks_per_host);
  if (peak <= share) return fmt::format("fits: {}\n", machine);
  std::string text = fmt::format("does not fit: {}\n", machine);
  const auto change = train::cheapest_change(model, config, plan.options, share);
  if (change) {
    text += fmt::format("would fit with {}: {:.0f} MiB per rank\n", change->words,
                        mib(change->device_peak));
  } else {
    text += "no stage, recomputation or micro-batch makes it fit: take more ranks or hosts\n";
  }
  return text;
}

}  // namespace zinc::apps
