// zero/update/step_result.h: what a step has come to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "zero/trace/phase_clock.h"

namespace zinc::zero {

enum class StepOutcome : uint8_t {
  accumulated,       // not all micro-batches of the step are there yet
  applied,           // weights have changed
  skipped_overflow,  // a gradient was not finite: no bit of weights, states or schedule has changed
};
std::string_view name_of(StepOutcome outcome);

struct StepResult {
  StepOutcome outcome = StepOutcome::accumulated;
  // The rest is of the whole step over all ranks, the same on every rank; only after a step that
  // was applied or skipped.
  int64_t step = 0;            // number of this optimizer step, from 1; skipped ones count
  double loss = 0.0;           // mean, natural logarithm
  double gradient_norm = 0.0;  // L2, of the gradient of the mean loss, before clipping
  double learning_rate = 0.0;  // that this step used
  double loss_scale = 1.0;     // that this step used
  int64_t num_targets = 0;
  std::optional<PhaseSeconds> phases;  // of this rank; with wall_clock_breakdown
  // Skipped: the first parameter whose gradient is not finite, and where gradients are sharded who
  // keeps it: "transformer.h.3.mlp.c_fc.weight, in the shard of rank 2".
  std::string overflow;
};

}  // namespace zinc::zero
