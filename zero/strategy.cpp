#include "zero/strategy.h"

#include "core/error.h"

namespace zinc::zero {
namespace {

std::vector<std::vector<OwnedRange>> owned_ranges(const std::vector<ShardGroup>& groups,
                                                  int parts) {
  std::vector<std::vector<OwnedRange>> owned(static_cast<size_t>(parts));
  for (int part = 0; part < parts; ++part) {
    for (const ShardGroup& group : groups) {
      for (const Segment& segment : group.segments()) {
        if (!is_trained(segment.kind)) continue;
        owned[static_cast<size_t>(part)].push_back({group.index(), segment.shard(part, parts)});
      }
    }
  }
  return owned;
}

std::unique_ptr<GradientStore> make_gradients(const EngineConfig& config,
                                              const StrategyInputs& inputs) {
  const GradientPolicy policy = GradientPolicy::choose(config);
  const GradientStoreOptions options{.policy = policy,
                                     .replicate = config.zero.stage == 0,
                                     .bucket_numel = config.zero.reduce_bucket_size,
                                     .overlap = config.overlap_comm(),
                                     .wire_divisor = inputs.wire_divisor,
                                     .allow_unused = config.zero.ignore_unused_parameters};
  const bool whole = config.zero.stage <= 1 && policy.schedule == ReduceSchedule::boundary;
  const auto make = whole ? make_whole_sums : make_sharded_sums;
  return make(inputs.groups, inputs.schedule, inputs.communicator, inputs.context, inputs.clock,
              options);
}

std::unique_ptr<WeightStore> make_weights(const EngineConfig& config,
                                          const StrategyInputs& inputs) {
  const ZeroConfig& zero = config.zero;
  const WeightStoreOptions options{.num_states = inputs.num_states,
                                   .shard_optimizer = zero.stage >= 1,
                                   .bucket_numel = zero.allgather_bucket_size,
                                   .overlap = config.overlap_comm(),
                                   .prefetch_numel = zero.prefetch_bucket_size,
                                   .max_live_numel = zero.max_live_parameters,
                                   .max_reuse_numel = zero.max_reuse_distance};
  if (zero.stage < 3) {
    return make_whole_weights(inputs.groups, inputs.communicator, inputs.context, inputs.weights,
                              options);
  }
  return make_sharded_weights(inputs.groups, inputs.dynamic_model ? nullptr : &inputs.schedule,
                              inputs.communicator, inputs.context, inputs.weights, options);
}

}  // namespace

Strategy make_strategy(const EngineConfig& config, const StrategyInputs& inputs) {
  require(config.zero.stage >= 0 && config.zero.stage <= 3, "the ZeRO stage must be 0 to 3, not ",
          config.zero.stage);
  return {
      .weights = make_weights(config, inputs),
      .gradients = make_gradients(config, inputs),
      .owned = owned_ranges(inputs.groups, config.zero.stage == 0 ? 1 : inputs.communicator.size()),
      .uses_are_collective = config.zero.stage == 3};
}

}  // namespace zinc::zero
