// zero/verdict_step.h: a step over which the device decides, recorded where passes are: see
// Note [Verdict on the device] and Note [Recorded step].
#pragma once

#include <cstdint>

#include "optim/optimizer.h"
#include "zero/device_verdict.h"
#include "zero/recorded_passes.h"
#include "zero/step_sums.h"
#include "zero/strategy.h"
#include "zero/update_rules.h"

namespace zinc::zero {

struct VerdictStep {
  DeviceVerdict& verdict;
  const Strategy& strategy;
  UpdateRules& rules;
  const optim::Optimizer& optimizer;
  RecordedPasses* recorded;  // null: nothing is recorded

  // The step-th update, with the rules as they are. Collective; waits once, when all is queued.
  DeviceVerdict::Result run(StepSums& sums, int64_t step);
};

}  // namespace zinc::zero
