#include "zero/optimizer_shards.h"

#include "core/error.h"
#include "core/transfer.h"
#include "kernels/fill.h"
#include "zero/host_memory.h"
#include "zero/host_stream.h"

namespace zinc::zero {

OptimizerShards::OptimizerShards(const std::vector<ShardGroup>& groups,
                                 comm::Communicator& communicator, Context& context, int num_states,
                                 bool sharded, Tier tier, SwappedShards* swapped, bool own_master)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      num_states_(num_states),
      parts_(sharded ? communicator.size() : 1),
      rank_(sharded ? communicator.rank() : 0),
      tier_(tier),
      swapped_(swapped),
      buffers_(groups.size()) {
  const auto zeros = [&](int64_t numel, DType dtype) {
    Block block = context.allocate(numel * size_of(dtype), Label::optimizer, tier_);
    kernels::fill({.y = host_memory(slice_of(block, dtype, 0, numel))}, context.compute());
    return block;
  };
  if (swapped != nullptr) return;
  for (const ShardGroup& group : groups) {
    Buffers& buffers = buffers_[static_cast<size_t>(group.index())];
    buffers.wide = group.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const int64_t numel = group.trained_numel() / parts_;
    if (group.dtype() != buffers.wide || tier_ != Tier::device || own_master)
      buffers.master = zeros(numel, buffers.wide);
    for (int i = 0; i < num_states; ++i) buffers.states.push_back(zeros(numel, buffers.wide));
  }
}

bool OptimizerShards::has_master(const ShardGroup& group) const {
  return swapped_ != nullptr ||
         static_cast<bool>(buffers_[static_cast<size_t>(group.index())].master);
}

Range OptimizerShards::owned(const Segment& segment, int rank) const {
  return segment.shard(rank, parts_);
}

int64_t OptimizerShards::offset_of(const ShardGroup&, const Segment& segment) const {
  return segment.offset / parts_;
}

View OptimizerShards::slice_of(const Block& block, DType dtype, int64_t offset,
                               int64_t numel) const {
  return View(block.data(), dtype, Shape{block.bytes() / size_of(dtype)}, context_.device(), tier_)
      .narrow(0, offset, numel);
}

View OptimizerShards::master(const ShardGroup& group, const Segment& segment, Range range) const {
  if (swapped_ != nullptr) return swapped_->read(group, range, SwappedShards::kMasterPlane);
  const Buffers& buffers = buffers_[static_cast<size_t>(group.index())];
  const int64_t offset = offset_of(group, segment) + range.begin - owned(segment).begin;
  return slice_of(buffers.master, buffers.wide, offset, range.size());
}

void OptimizerShards::write_master(const ShardGroup& group, const Segment& segment, Range range,
                                   const ConstView& values) {
  if (swapped_ != nullptr) {
    swapped_->write(group, range, SwappedShards::kMasterPlane, values);
    return;
  }
  transfer(values, master(group, segment, range), context_.compute());
}

View OptimizerShards::state(const ShardGroup& group, const Segment& segment, int index,
                            Range range) const {
  if (swapped_ != nullptr) return swapped_->read(group, range, SwappedShards::state_plane(index));
  const Buffers& buffers = buffers_[static_cast<size_t>(group.index())];
  const int64_t offset = offset_of(group, segment) + range.begin - owned(segment).begin;
  return slice_of(buffers.states[static_cast<size_t>(index)], buffers.wide, offset, range.size());
}

std::vector<UpdateSlice> OptimizerShards::slices(const ModelView& model) const {
  std::vector<UpdateSlice> slices;
  for (const ShardGroup& group : groups_) {
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      UpdateSlice slice;
      slice.group = group.index();
      slice.segment = segment.kind;
      slice.range = owned(segment);
      const View model_weights = model(group, segment, slice.range);
      slice.model_tier = model_weights ? model_weights.tier() : Tier::nvme;
      slice.model_dtype = group.dtype();
      if (swapped_ != nullptr) {
        slice.model_weights = model_weights;
        slices.push_back(slice);
        continue;
      }
      slice.weights = has_master(group) ? master(group, segment, slice.range) : model_weights;
      if (has_master(group)) slice.model_weights = model_weights;
      for (int i = 0; i < num_states_; ++i) {
        slice.states[static_cast<size_t>(i)] = state(group, segment, i, slice.range);
      }
      slices.push_back(slice);
    }
  }
  return slices;
}

void OptimizerShards::read(const ShardGroup& group, const Placement& placement,
                           const OwnedValues& values, View out) {
  const Segment& segment = group.segment(placement.segment);
  for (int rank = 0; rank < parts_; ++rank) {
    const Range inside = intersect(placement.range(), owned(segment, rank));
    if (inside.empty()) continue;
    const View target = out.narrow(0, inside.begin - placement.offset, inside.size());
    if (rank == rank_) {
      copy_to_device(values(group, segment, inside), target, context_);
    }
    if (parts_ > 1) {
      communicator_.broadcast({.inout = target, .root = rank}, context_.compute()).wait();
    }
  }
  context_.compute()->synchronize();
}

}  // namespace zinc::zero
