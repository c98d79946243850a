// zero/strategy.h: the one place that turns a ZeRO stage into objects.
//
//   stage | model weights | master, states | gradients until the step
//   0     | whole         | whole          | whole
//   1     | whole         | shards         | whole until they are reduced, then shards
//   2     | whole         | shards         | shards
//   3     | shards        | shards         | shards
//
// With offload_optimizer the shards of gradients are in host memory, or with gradient_offload in
// swap space; those of master weights and states there too, or in swap space (nvme). With a ratio
// below 1 part of all three stays on the device: Note [Split states].
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/phase_clock.h"
#include "nn/module.h"
#include "zero/engine_config.h"
#include "zero/layout/shard_group.h"
#include "zero/rewrites/step_program.h"
#include "zero/update/stores.h"

namespace zinc::zero {

// What the configuration asks of the order of a step: which rewrites make its program, and which of
// the ways below an update takes. The one place that decides it.
StepPolicy choose_policy(const EngineConfig& config, const ShardGroups& groups, Device device,
                         bool dynamic_model);

struct StoreInputs {
  const ShardGroups& groups;
  const StepProgram& program;
  comm::Communicator& communicator;
  Context& context;
  const nn::WeightSource& weights;
  PhaseClock& clock;
  optim::States states{};  // of the optimizer
  double wire_divisor = 1.0;
};

// `inputs` must outlive the stores, but for `weights`.
Stores make_stores(const EngineConfig& config, const StoreInputs& inputs);

}  // namespace zinc::zero
