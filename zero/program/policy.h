// zero/program/policy.h: the settings of a configuration that decide the order of a step.
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
  never,            // the engine only computes: a program has an evaluation, no body, no step
};

// A rank of a pipeline, and the micro-batches that pass through it in a step.
struct PipelinePlace {
  int rank = 0, size = 1;
  int64_t micro_batches = 1;
  parallel::PipelineSchedule schedule = parallel::PipelineSchedule::one_forward_one_backward;
  int parts = 1;  // parts of each rank

  parallel::PipelineShape shape() const {
    return {.schedule = schedule, .ranks = size, .micro_batches = micro_batches, .parts = parts};
  }
  // True if the gradients of weights are made apart from those of inputs.
  bool splits_backward() const { return schedule == parallel::PipelineSchedule::zero_bubble; }
};

// Equal on all ranks, but for `pipeline`. Counts are elements.
struct StepPolicy {
  bool shards_parameters = false;  // groups are gathered for use
  bool swaps_parameters = false;   // shards of groups may be in swap space
  bool gathers_ahead = false;      // gathers run beside compute, ahead of the use
  int64_t prefetch_numel = 0;      // most elements that are gathered ahead, or one group; 0: none
  // Most elements that are gathered at once; groups in use may exceed it.
  int64_t max_live_numel = 0;
  int64_t max_reuse_numel = 0;  // a group stays gathered if fewer are used before its next use
  // Bytes of groups that stay through a step; no bound above counts them.
  int64_t resident_bytes = 0;
  bool repeats = false;        // a step has several micro-batches, one after the other
  bool reduces_every = false;  // true: ranks reduce every micro-batch; false: the last of a step
  // True: ranks reduce at the end of backward. False: as gradients are finished.
  bool reduces_after_backward = false;
  // True: the losses of a step's micro-batches are made in their backward pass.
  bool losses_in_backward = false;
  UpdateTime update = UpdateTime::in_step;
  // For beside_forward only: how many groups are published ahead of the group in use; and whether
  // updates may run from the step on, in their order, as disks bring their states.
  size_t groups_ahead = 0;
  bool updates_in_order = false;
  bool sees_whole = false;  // the update rule takes parameters as whole matrices
  PipelinePlace pipeline{};

  bool trains() const { return update != UpdateTime::never; }
  // True if an update may go on beside passes of the model.
  bool updates_beside_passes() const {
    return update == UpdateTime::during_backward || update == UpdateTime::beside_forward;
  }
};

}  // namespace zinc::zero
