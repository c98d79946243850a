#include "zero/group/weight_store.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "kernels/fill.h"

namespace zinc::zero {

WeightStore::WeightStore(const ShardGroups& groups, comm::Communicator& communicator,
                         Context& context, const WeightStoreOptions& options)
    : groups_(groups),
      context_(context),
      options_(options),
      optimizer_(groups, communicator, context, options.states, options.split, options.swapped,
                 /*own_master=*/offloads() || options.states.apart),
      shards_(options.shard_weights ? std::make_unique<ParameterShards>(groups, communicator,
                                                                        context, options.parameters)
                                    : nullptr),
      kept_(groups.size()) {
  for (const ShardGroup& group : groups_) {
    const int64_t bytes = group.bytes() - (shards_ != nullptr ? group.gathered_bytes() : 0);
    if (bytes == 0) continue;
    kept_[group] = context.allocate(bytes, Label::parameters);
    kernels::fill({.y = View(kept_[group].data(), DType::u8, Shape{bytes}, context.device())},
                  context.compute());
  }
  slices_ = optimizer_.slices([this](const OwnedRange& slice) {
    const ShardGroup& group = groups_[slice.group];
    const bool is_swapped = !keeps_whole(slice.segment) && shards_->tier_of(group) == Tier::nvme;
    return is_swapped ? View() : kept(group, group.segment(slice.segment), slice.range);
  });
}

int64_t WeightStore::bytes_before(const ShardGroup& group, const Segment& segment) const {
  int64_t bytes = 0;
  for (const Segment& other : group.segments()) {
    if (other.kind == segment.kind) break;
    if (keeps_whole(other.kind) != keeps_whole(segment.kind)) continue;
    bytes += other.encoding.bytes_of(other.size);
  }
  return bytes;
}

View WeightStore::view_of(const ShardGroup& group, const Block& block, const Segment& segment,
                          Range range) const {
  return segment.encoding.view(block, bytes_before(group, segment), range.from(segment.offset),
                               context_.device());
}

View WeightStore::kept(const ShardGroup& group, const Segment& segment, Range range) const {
  if (!keeps_whole(segment.kind)) return shards_->view(group, segment, range);
  return view_of(group, kept_[group], segment, range);
}

void WeightStore::take_updated(int group, Range range, const ConstView& values, StreamRef stream) {
  bug_check(shards_ != nullptr, "whole weights are on the device");
  shards_->take_updated(groups_[group], range, values, stream);
}

void WeightStore::settle_updates() {
  if (shards_ != nullptr) shards_->finish_update();
}

offload::SwapTraffic WeightStore::swap_traffic() const {
  return shards_ != nullptr ? shards_->traffic() : offload::SwapTraffic();
}

std::vector<std::pair<autograd::Parameter*, Tensor>> WeightStore::hand_over() {
  std::vector<std::pair<autograd::Parameter*, Tensor>> values;
  if (shards_ != nullptr) return values;
  for (const ShardGroup& group : groups_) {
    const auto kept = std::make_shared<Block>(std::move(kept_[group]));
    for (const Placement& placement : group.placements()) {
      if (is_quantized(placement.segment)) continue;  // there may be no room for them
      const View own = view_of(group, *kept, group.segment(placement.segment), placement.range());
      values.emplace_back(placement.parameter,
                          Tensor::wrap(own.reshape(placement.parameter->shape()), kept));
    }
  }
  return values;
}

void WeightStore::expect_updates() {
  if (options_.parameters.updates_during_passes && shards_ != nullptr) shards_->expect_updates();
}

void WeightStore::settle() {
  if (shards_ != nullptr) shards_->settle();
  optimizer_.settle();
}

}  // namespace zinc::zero
