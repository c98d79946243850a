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

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "nn/module.h"
#include "zero/engine_config.h"
#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"
#include "zero/passes/step_program.h"
#include "zero/trace/phase_clock.h"
#include "zero/update/gradient_norm.h"
#include "zero/update/weight_update.h"

namespace zinc::zero {

struct Strategy {
  std::unique_ptr<offload::SwapClock> swap_clock;
  std::unique_ptr<SwappedShards> swapped;               // null: nothing is in swap space
  std::unique_ptr<SwappedGradients> swapped_gradients;  // null: they are not in swap space
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<GradientStore> gradients;
  // What each rank updates; one entry where every rank updates everything. See GradientNorm.
  std::vector<std::vector<Slice>> owned;
  std::unique_ptr<WeightUpdate> update;

  // Since construction began, of states, gradients and parameters together.
  offload::SwapTraffic swap_traffic() const;
};

// What the configuration asks of the order of a step: which passes make its program, and which of
// the ways below an update takes. The one place that decides it.
StepPolicy choose_policy(const EngineConfig& config, const ShardGroups& groups, Device device,
                         bool dynamic_model);

struct StrategyInputs {
  const ShardGroups& groups;
  const StepProgram& program;
  comm::Communicator& communicator;
  Context& context;
  const nn::WeightSource& weights;
  PhaseClock& clock;
  optim::States states{};  // of the optimizer
  double wire_divisor = 1.0;
};

// `inputs` must outlive the strategy, but for `weights`.
Strategy make_strategy(const EngineConfig& config, const StrategyInputs& inputs);

}  // namespace zinc::zero
