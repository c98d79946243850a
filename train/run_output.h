// train/run_output.h: what a run writes its figures to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/metrics/run_folder.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// The files of figures of a run, new ones or, with `so_far`, those that go on. `configuration`: the
// resolved one, as text. Throws IoError.
std::vector<std::unique_ptr<MetricsSink>> open_sinks(const RunFolder& run, const Config& config,
                                                     const std::string& configuration,
                                                     const std::optional<FiguresSoFar>& so_far);

}  // namespace zinc::train
