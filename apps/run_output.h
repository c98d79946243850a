// apps/run_output.h: what a run writes its figures to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/config/config.h"
#include "train/metrics/run_folder.h"
#include "train/metrics/step_metrics.h"

namespace zinc::apps {

// Of rank 0; empty elsewhere.
struct RunOutput {
  std::optional<train::RunFolder> run;
  std::vector<std::unique_ptr<train::MetricsSink>> sinks;
};

// Makes the run's folder, which `force` lets replace another at its keep(), with the configuration
// in it. Throws as train::RunFolder does.
RunOutput open_output(const train::Config& config, const std::string& folder, bool force,
                      const comm::World& world);

}  // namespace zinc::apps
