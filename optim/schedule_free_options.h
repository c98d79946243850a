// optim/schedule_free_options.h: constants of optim/schedule_free.h.
#pragma once

#include <cstdint>

namespace zinc::optim {

struct ScheduleFreeOptions {
  int64_t warmup_steps = 0;      // at least 0
  double r = 0.0;                // at least 0: later steps count more in the average
  double weight_lr_power = 2.0;  // at least 0: steps with a higher rate count more
};

}  // namespace zinc::optim
