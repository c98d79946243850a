// zero/strategy.h: the one place that turns a ZeRO stage into objects.
//
//   stage | model weights | master, states | gradients until the step
//   0     | whole         | whole          | whole
//   1     | whole         | shards         | whole until they are reduced, then shards
//   2     | whole         | shards         | shards
//   3     | shards        | shards         | shards
//
// An engine that only computes has the model weights alone.
//
// With offload_optimizer, the shards of gradients are in host memory, or in swap space with
// gradient_offload nvme. The shards of master weights and states are in host memory (cpu) or in
// swap space (nvme). With a ratio below 1 part of all three stays on the device: Note [Split
// states].
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/phase_clock.h"
#include "nn/module.h"
#include "zero/engine_config.h"
#include "zero/group/group_sums.h"
#include "zero/layout/shard_group.h"
#include "zero/rewrites/step_program.h"
#include "zero/update/stores.h"

namespace zinc::zero {

// The order of a step that the configuration asks for: which rewrites make its program, and how an
// update runs. No other file decides this.
// `trains`: false for an engine that only computes.
StepPolicy choose_policy(const EngineConfig& config, const ShardGroups& groups, Device device,
                         bool dynamic_model, bool trains = true);

struct StoreInputs {
  const ShardGroups& groups;
  const StepProgram& program;
  comm::Communicator& communicator;
  Context& context;
  const nn::WeightSource& weights;
  PhaseClock& clock;
  optim::States states{};                        // states of the optimizer
  const optim::WholeRule* whole_rule = nullptr;  // Optimizer::whole_rule()
  const optim::SignReduction* signs = nullptr;   // Optimizer::sign_reduction()
  double wire_divisor = 1.0;
  MakeGroupSums make_sums;  // EngineOptions::gradient_sums
};

// `inputs` must outlive the stores, but for `weights` and `make_sums`. If the program never
// updates, there are weights alone.
Stores make_stores(const EngineConfig& config, const StoreInputs& inputs);

}  // namespace zinc::zero
