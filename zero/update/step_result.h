// zero/update/step_result.h: the outcome of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/phase_clock.h"

namespace zinc::zero {

enum class StepOutcome : uint8_t {
  accumulated,       // more micro-batches of the step are to come
  applied,           // the weights were updated
  skipped_overflow,  // a gradient was not finite: no bit of weights, states or schedule has changed
};
std::string_view name_of(StepOutcome outcome);

struct StepResult {
  StepOutcome outcome = StepOutcome::accumulated;
  // The other members hold for the whole step over all ranks, and are equal on every rank. They are
  // set only after a step that was applied or skipped.
  int64_t step = 0;            // number of this optimizer step, from 1; skipped steps count
  double loss = 0.0;           // mean, natural logarithm
  double gradient_norm = 0.0;  // L2 norm of the gradient of the mean loss, before clipping
  double learning_rate = 0.0;  // used by this step
  double loss_scale = 1.0;     // used by this step
  int64_t num_targets = 0;
  std::optional<PhaseSeconds> phases;  // of this rank; only with wall_clock_breakdown
  // For a skipped step: the first parameter whose gradient is not finite. If gradients are sharded,
  // also the rank that keeps it: "transformer.h.3.mlp.c_fc.weight, in the shard of rank 2".
  std::string overflow;
};

}  // namespace zinc::zero
