// apps/train/training_job.h: a run of `zinc train` on all ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "apps/rank_job.h"
#include "apps/train/training_setup.h"
#include "core/trace.h"

namespace zinc::apps {

// `world_size`: all ranks of the run. `options` outlive the job, and `trace` the ranks' world.
std::unique_ptr<RankJob> training_job(const TrainArguments& options, int64_t world_size,
                                      TraceRecorder& trace);

}  // namespace zinc::apps
