// zero/program/policy.h: what a configuration asks of the order of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/pipeline.h"

namespace zinc::zero {

// When weights are updated.
enum class UpdateTime : uint8_t {
  in_step,          // between the backward pass and the next forward pass
  during_backward,  // from a group's last reduction on: Note [Updates during backward]
  beside_forward,   // beside the next forward pass: Note [Updates beside the next forward pass]
};

// A rank of a pipeline, and what passes through it in a step.
struct PipelinePlace {
  int rank = 0, size = 1;
  int64_t micro_batches = 1;
  parallel::PipelineSchedule schedule = parallel::PipelineSchedule::one_forward_one_backward;
};

// The same on all ranks, but for the place in a pipeline. Counts are elements.
struct StepPolicy {
  bool shards_parameters = false;  // groups are gathered for use
  bool swaps_parameters = false;   // their shards may lie in swap space
  bool gathers_ahead = false;      // beside compute, ahead of their use
  int64_t prefetch_numel = 0;      // on their way ahead of their use at most, or one group; 0: none
  int64_t max_live_numel = 0;      // that are gathered at once, but for what is in use
  int64_t max_reuse_numel = 0;     // a group stays gathered where its next use is nearer
  int64_t resident_bytes = 0;      // of groups that stay gathered through a step; beside the above
  bool repeats = false;            // a step has several micro-batches, one after the other
  bool reduces_every = false;      // ranks reduce every micro-batch; else the last of a step
  bool reduces_after_backward = false;  // else as gradients are finished
  UpdateTime update = UpdateTime::in_step;
  PipelinePlace pipeline{};
  size_t groups_ahead = 0;  // beside_forward: groups whose new weights are asked for ahead of use
};

}  // namespace zinc::zero
