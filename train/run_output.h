// train/run_output.h: opens the files that a run writes its figures to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/metrics/run_folder.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// Opens the files of figures: new ones, or with `so_far` those of a run that continues.
// `configuration`: the resolved configuration as text. Throws IoError.
std::vector<std::unique_ptr<MetricsSink>> open_sinks(const RunFolder& run, const Config& config,
                                                     const std::string& configuration,
                                                     const std::optional<FiguresSoFar>& so_far);

}  // namespace zinc::train
