// train/config/scheduler_keys.h: the block "scheduler" of a configuration.
#pragma once

#include "optim/schedule_config.h"
#include "train/config/config.h"
#include "train/config/fields.h"

namespace zinc::train {

// `block` null: a constant learning rate. `lr`: the optimizer's. A flag that the scheduler would
// not look at is a problem.
optim::ScheduleConfig read_scheduler(const json::Value* block, const Overrides& flags, double lr,
                                     Findings& findings);

}  // namespace zinc::train
