#include "zero/strategy.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "zero/group/shard_sums.h"
#include "zero/group/whole_sums.h"

namespace zinc::zero {
namespace {

// Whole sums of several micro-batches, reduced once per step: whole_sums.h.
bool keeps_whole_sums(const EngineConfig& config) {
  if (config.sends_signs()) return true;
  return config.zero.stage <= 1 &&
         GradientPolicy::choose(config).schedule == ReduceSchedule::boundary;
}

// Note [Sums in host memory]
bool makes_sums_in_host(const EngineConfig& config) {
  return config.gradient_offload == GradientOffload::host && !keeps_whole_sums(config) &&
         config.batch.accumulation > config.batches_together();
}

// Elements of a group that a rank updates, by where their sums are.
struct NumelOfTiers {
  int64_t on_device = 0;
  int64_t away = 0;
};

NumelOfTiers numel_of_tiers(const ShardGroup& group, const std::vector<OwnedRange>& slices) {
  NumelOfTiers numel;
  for (const OwnedRange& slice : slices) {
    if (slice.group != group.index()) continue;
    (slice.tier == Tier::device ? numel.on_device : numel.away) += slice.range.size();
  }
  return numel;
}

bool all_leave(const NumelOfTiers& numel) { return numel.away > 0 && numel.on_device == 0; }

// Null: no sums are in host memory.
std::unique_ptr<HostGradients> make_host_gradients(const EngineConfig& config,
                                                   const StoreInputs& inputs,
                                                   const std::vector<OwnedRange>& slices) {
  const GradientPolicy policy = GradientPolicy::choose(config);
  int64_t away = 0;
  int64_t most_added = 0;
  for (const ShardGroup& group : inputs.groups) {
    const NumelOfTiers numel = numel_of_tiers(group, slices);
    away += numel.away;
    if (makes_sums_in_host(config) && all_leave(numel)) {
      most_added = std::max(most_added, numel.away);
    }
  }
  if (away == 0 || config.gradient_offload == GradientOffload::nvme) return nullptr;
  return std::make_unique<HostGradients>(
      inputs.groups, inputs.context,
      HostGradientsOptions{.slices = slices,
                           .dtype = policy.kept,
                           .tree = policy.tree_over_micro_batches,
                           .added = policy.added_in_host(inputs.communicator.size()),
                           .most_added = most_added});
}

// How the sums of each group are made: the table in zero/group/group_sums.h.
MakeGroupSums choose_sums(const EngineConfig& config, const StoreInputs& inputs,
                          const std::vector<OwnedRange>& slices, HostGradients* host,
                          SwappedGradients* swapped) {
  if (inputs.make_sums) return inputs.make_sums;
  return
      [&, host, swapped](const ShardGroup& group, Reducer& reducer) -> std::unique_ptr<GroupSums> {
        const NumelOfTiers numel = numel_of_tiers(group, slices);
        SumsAway* away = host;
        if (swapped != nullptr) away = swapped;
        const bool leaves = numel.away > 0;
        if (keeps_whole_sums(config)) {
          if (config.zero.stage == 0) return std::make_unique<ReplicatedSums>(group, reducer);
          if (!leaves) return std::make_unique<WholeSums>(group, reducer);
          return std::make_unique<LeavingWholeSums>(group, reducer, *away, all_leave(numel));
        }
        std::unique_ptr<ShardOrder> order = std::make_unique<RunningSum>();
        if (reducer.policy().tree_over_micro_batches) order = std::make_unique<TreeOfSums>(reducer);
        if (config.zero.stage == 0) {
          return std::make_unique<GatheredSums>(group, reducer, std::move(order));
        }
        if (!leaves) return std::make_unique<ShardSums>(group, reducer, std::move(order));
        if (swapped != nullptr) {
          return std::make_unique<SwappedShardSums>(group, reducer, std::move(order), *swapped);
        }
        if (makes_sums_in_host(config) && all_leave(numel)) {
          return std::make_unique<HostShardSums>(group, reducer, std::move(order), *host);
        }
        return std::make_unique<LeavingShardSums>(group, reducer, std::move(order), *host,
                                                  all_leave(numel));
      };
}

std::unique_ptr<GradientStore> make_gradients(const EngineConfig& config, const StoreInputs& inputs,
                                              const std::vector<OwnedRange>& slices,
                                              const Stores& stores) {
  SumsAway* away = stores.host_gradients.get();
  if (stores.swapped_gradients != nullptr) away = stores.swapped_gradients.get();
  const GradientStoreOptions options{.reducer = {.policy = GradientPolicy::choose(config),
                                                 .bucket_numel = config.zero.reduce_bucket_size,
                                                 .wire_divisor = inputs.wire_divisor,
                                                 .stays = config.cuda_graph,
                                                 .signs = stores.signs.get()},
                                     .away = away,
                                     .overlap = config.overlap_comm(),
                                     .allow_unused = config.zero.ignore_unused_parameters,
                                     .turns = inputs.program.record.turns};
  return std::make_unique<GradientStore>(
      inputs.groups, inputs.communicator, inputs.context, inputs.clock,
      choose_sums(config, inputs, slices, stores.host_gradients.get(),
                  stores.swapped_gradients.get()),
      options);
}

Tier tier_of(const OffloadConfig& offload) {
  switch (offload.device) {
    case OffloadDevice::none:
      return Tier::device;
    case OffloadDevice::cpu:
      return Tier::pinned_host;
    case OffloadDevice::nvme:
      return Tier::nvme;
  }
  return Tier::device;
}

int64_t tile_numel(const EngineConfig& config) {
  constexpr int64_t kDefaultTile = 1'000'000'000;
  // Two buffers of this size lie on the device: large beside the cost of starting a copy, small
  // beside a model.
  constexpr int64_t kDefaultStreamedTile = int64_t{1} << 23;
  if (config.zero.sub_group_size != 0) return config.zero.sub_group_size;
  return config.offload_step == OffloadStep::device ? kDefaultStreamedTile : kDefaultTile;
}

std::unique_ptr<SwappedShards> make_swapped(const EngineConfig& config, const StoreInputs& inputs,
                                            offload::SwapClock* clock) {
  const OffloadConfig& offload = config.zero.offload_optimizer;
  if (tier_of(offload) != Tier::nvme) return nullptr;
  return std::make_unique<SwappedShards>(
      inputs.groups,
      optimizer_tiles(inputs.groups, inputs.communicator, inputs.states, tile_numel(config)),
      inputs.states, Label::optimizer, inputs.context, swap_settings(config, offload, clock));
}

std::unique_ptr<SwappedGradients> make_swapped_gradients(const EngineConfig& config,
                                                         const StoreInputs& inputs,
                                                         const std::vector<OwnedRange>& slices,
                                                         offload::SwapClock* clock) {
  if (config.gradient_offload != GradientOffload::nvme) return nullptr;
  return std::make_unique<SwappedGradients>(
      inputs.groups, inputs.communicator, inputs.context,
      SwappedGradientsOptions{.tile_numel = tile_numel(config),
                              .dtype = GradientPolicy::choose(config).kept,
                              .order = inputs.program.record.reduce_order,
                              .slices = slices,
                              .returns = config.batch.accumulation > config.batches_together() &&
                                         !keeps_whole_sums(config),
                              .swap = swap_settings(config, config.zero.offload_optimizer, clock)});
}

ParameterShardOptions parameter_shards(const EngineConfig& config, bool updates_during_passes,
                                       offload::SwapClock* clock) {
  const OffloadConfig& offload = config.zero.offload_param;
  return {.tier = tier_of(offload),
          .swap = swap_settings(config, offload, clock),
          .buffer_count = offload.buffer_count,
          .buffer_numel = offload.buffer_size,
          .max_in_host = offload.max_in_cpu,
          .updates_during_passes = updates_during_passes,
          .updates_in_parts = config.zero.offload_optimizer.ratio < 1.0};
}

std::unique_ptr<WeightStore> make_weights(const EngineConfig& config, const StoreInputs& inputs,
                                          const StateSplit& split, const Stores& stores) {
  const ZeroConfig& zero = config.zero;
  const WeightStoreOptions options{
      .shard_weights = zero.stage == 3,
      .split = split,
      .states = inputs.states,
      .shard_optimizer = zero.stage >= 1,
      .parameters = parameter_shards(config, inputs.program.policy.updates_beside_passes(),
                                     stores.swap_clock.get()),
      .swapped = stores.swapped.get()};
  return std::make_unique<WeightStore>(inputs.groups, inputs.communicator, inputs.context, options);
}

std::unique_ptr<WeightUpdate> make_update(const EngineConfig& config, const StoreInputs& inputs,
                                          const Stores& stores) {
  const OffloadConfig& offload = config.zero.offload_optimizer;
  WeightUpdateOptions options{.order = inputs.program.record.use_order,
                              .tile_numel = tile_numel(config),
                              .on_device = offload.device == OffloadDevice::cpu &&
                                           config.offload_step == OffloadStep::device,
                              .whole_rule = inputs.whole_rule,
                              .whole_windows = inputs.program.program.whole_windows(),
                              .parts = config.zero.stage == 0 ? 1 : inputs.communicator.size(),
                              .apart = inputs.states.apart};
  if (stores.swapped != nullptr) {
    options.swap = {.states = stores.swapped.get(),
                    .gradients = stores.swapped_gradients.get(),
                    .order = inputs.program.program.update_order(),
                    .read_ahead = offload.pipeline_read,
                    .write_behind = offload.pipeline_write};
  }
  return std::make_unique<WeightUpdate>(*stores.weights, *stores.gathered, *stores.gradients,
                                        inputs.groups, inputs.communicator, inputs.context,
                                        options);
}

// Whether updates run beside passes: the host computes them, and no phase waits for the phase
// before. With a ratio below 1, tiles of parameters on NVMe are updated in two places, and only
// within the step: Note [Split states].
bool updates_beside_passes(const EngineConfig& config, Device device, bool dynamic_model) {
  if (dynamic_model || config.wall_clock_breakdown) return false;
  const OffloadConfig& states = config.zero.offload_optimizer;
  switch (states.device) {
    case OffloadDevice::none:
      return false;
    case OffloadDevice::nvme:
      return config.overlap_update.value_or(true);
    case OffloadDevice::cpu:
      break;
  }
  const bool swaps_parts =
      states.ratio < 1.0 && config.zero.offload_param.device == OffloadDevice::nvme;
  return states.ratio > 0.0 && config.offload_step != OffloadStep::device && !swaps_parts &&
         config.overlap_update.value_or(device.is_cuda());
}

// See Note [Updates during backward]. A frozen part of a group may be gathered after the group's
// gradients are complete: then nothing begins early.
bool may_update_during_backward(const EngineConfig& config, const ShardGroups& groups) {
  const auto frozen = [](const Segment& segment) { return !is_trained(segment.kind); };
  const bool has_frozen = std::any_of(groups.begin(), groups.end(), [&](const ShardGroup& group) {
    return std::any_of(group.segments().begin(), group.segments().end(), frozen);
  });
  return !has_frozen && !config.sends_signs() && config.gradient.clipping == 0.0 &&
         !config.precision.check_overflow && config.precision.dtype != DType::f16;
}

// Two groups ahead keep the CPU at work while the device computes a small group; with more, other
// copies would wait behind those of weights that are not needed yet. From swap space a group ahead
// would be waited for.
constexpr size_t kGroupsAhead = 2;

}  // namespace

StepPolicy choose_policy(const EngineConfig& config, const ShardGroups& groups, Device device,
                         bool dynamic_model, bool trains) {
  const ZeroConfig& zero = config.zero;
  StepPolicy policy{
      .shards_parameters = zero.stage == 3,
      .swaps_parameters = zero.stage == 3 && tier_of(zero.offload_param) == Tier::nvme,
      .gathers_ahead = config.overlap_comm(),
      .prefetch_numel = zero.prefetch_bucket_size,
      .max_live_numel = zero.max_live_parameters,
      .max_reuse_numel = zero.max_reuse_distance,
      .resident_bytes = dynamic_model ? 0 : zero.resident_memory,
      .repeats = config.batch.accumulation > config.batches_together(),
      .reduces_every = !keeps_whole_sums(config),
      // A dynamic model gathers in backward; only this keeps the ranks' collectives in one order.
      .reduces_after_backward = (dynamic_model && zero.stage == 3) || config.cuda_graph,
      .losses_in_backward = config.batches_together() > 1,
      .sees_whole = trains && std::ranges::any_of(groups, has_whole)};
  if (!trains) {
    policy.update = UpdateTime::never;
    return policy;
  }
  // Matrices are gathered within the step. With several parts in a stage (interleave), no first
  // forward pass has all groups.
  if (!policy.sees_whole && config.pipeline.interleave == 1 &&
      updates_beside_passes(config, device, dynamic_model)) {
    policy.update = config.pipeline.ranks == 1 && may_update_during_backward(config, groups)
                        ? UpdateTime::during_backward
                        : UpdateTime::beside_forward;
    const bool on_disk = tier_of(zero.offload_optimizer) == Tier::nvme;
    policy.groups_ahead = on_disk ? 0 : kGroupsAhead;
    policy.updates_in_order = on_disk;
  }
  return policy;
}

Stores make_stores(const EngineConfig& config, const StoreInputs& inputs) {
  require(config.zero.stage >= 0 && config.zero.stage <= 3, "the ZeRO stage must be 0 to 3, not ",
          config.zero.stage);
  const OffloadConfig& offload = config.zero.offload_optimizer;
  const StateSplit split(inputs.groups, config.zero.stage == 0 ? 1 : inputs.communicator.size(),
                         tier_of(offload), offload.ratio);
  Stores stores;
  stores.swap_clock = std::make_unique<offload::SwapClock>();
  stores.swapped = make_swapped(config, inputs, stores.swap_clock.get());
  for (int owner = 0; owner < split.parts(); ++owner) {
    stores.owned.push_back(split.slices(inputs.groups, owner));
  }
  const size_t me = split.parts() > 1 ? static_cast<size_t>(inputs.communicator.rank()) : 0;
  const std::vector<OwnedRange>& slices = stores.owned[me];
  stores.swapped_gradients =
      make_swapped_gradients(config, inputs, slices, stores.swap_clock.get());
  stores.weights = make_weights(config, inputs, split, stores);
  stores.gathered = std::make_unique<GatheredWeights>(
      *stores.weights, inputs.groups, inputs.communicator, inputs.context,
      GatheredWeightsOptions{.bucket_numel = config.zero.allgather_bucket_size,
                             .overlap = config.overlap_comm(),
                             .max_live_numel = config.zero.max_live_parameters});
  stores.values = std::make_unique<WeightValues>(*stores.weights, *stores.gathered, inputs.groups,
                                                 inputs.context);
  stores.values->load({[&](const autograd::Parameter& parameter, int64_t begin, const View& out) {
                        inputs.weights.read_here(parameter, begin, out);
                      }},
                      {});
  if (!inputs.program.policy.trains()) return stores;
  stores.host_gradients = make_host_gradients(config, inputs, slices);
  if (inputs.signs != nullptr) {
    stores.signs = std::make_unique<SignSums>(*inputs.signs, inputs.groups, inputs.communicator,
                                              inputs.context, tier_of(offload));
  }
  stores.gradients = make_gradients(config, inputs, slices, stores);
  bug_check(!inputs.program.policy.updates_beside_passes() || split.leaves_device(),
            "an update beside passes has nothing off the device");
  stores.update = make_update(config, inputs, stores);
  return stores;
}

}  // namespace zinc::zero
