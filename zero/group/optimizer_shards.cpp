#include "zero/group/optimizer_shards.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "zero/tiers/host_stream.h"

namespace zinc::zero {

OptimizerShards::OptimizerShards(const std::vector<ShardGroup>& groups,
                                 comm::Communicator& communicator, Context& context,
                                 const optim::States& states, StateSplit split,
                                 SwappedShards* swapped, bool own_master)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      states_(states),
      split_(std::move(split)),
      rank_(split_.parts() > 1 ? communicator.rank() : 0),
      swapped_(swapped),
      buffers_(groups.size()) {
  if (swapped != nullptr) return;
  for (const ShardGroup& group : groups) {
    for (const Tier tier : {Tier::device, Tier::pinned_host}) {
      const int64_t numel = split_.numel(group, tier);
      if (numel == 0) continue;
      const auto zeros = [&](int plane) {
        const DType dtype = dtype_of(group, plane);
        Block block = context.allocate(numel * size_of(dtype), Label::optimizer, tier);
        kernels::fill({.y = host_memory(view_of(block, dtype, {tier, {0, numel}, 0}))},
                      context.compute());
        return block;
      };
      Buffers& buffers = buffers_[static_cast<size_t>(group.index())][static_cast<size_t>(tier)];
      if (group.dtype() != group.wide_dtype() || tier != Tier::device || own_master)
        buffers.master = zeros(kMasterPlane);
      for (int i = 0; i < states.count; ++i) buffers.states.push_back(zeros(kFirstStatePlane + i));
    }
  }
}

const OptimizerShards::Buffers& OptimizerShards::buffers_of(const ShardGroup& group,
                                                            Tier tier) const {
  return buffers_[static_cast<size_t>(group.index())][static_cast<size_t>(tier)];
}

bool OptimizerShards::has_master(const ShardGroup& group) const {
  const ByTier& tiers = buffers_[static_cast<size_t>(group.index())];
  return swapped_ != nullptr || std::any_of(tiers.begin(), tiers.end(), [](const Buffers& buffers) {
           return static_cast<bool>(buffers.master);
         });
}

bool OptimizerShards::has_master(const ShardGroup& group, const Segment& segment,
                                 Range range) const {
  if (swapped_ != nullptr) return true;
  return static_cast<bool>(buffers_of(group, split_.piece(group, segment, range).tier).master);
}

Range OptimizerShards::owned(const Segment& segment, int rank) const {
  return segment.shard(rank, split_.parts());
}

View OptimizerShards::view_of(const Block& block, DType dtype,
                              const StateSplit::Piece& piece) const {
  return View(block.data(), dtype, Shape{block.bytes() / size_of(dtype)}, context_.device(),
              piece.tier)
      .narrow(0, piece.place, piece.range.size());
}

View OptimizerShards::master(const ShardGroup& group, const Segment& segment, Range range) const {
  if (swapped_ != nullptr) return swapped_->read(group, range, kMasterPlane);
  const StateSplit::Piece piece = split_.piece(group, segment, range);
  return view_of(buffers_of(group, piece.tier).master, group.wide_dtype(), piece);
}

void OptimizerShards::write(const ShardGroup& group, const Segment& segment, int plane, Range range,
                            const ConstView& values) {
  if (const DType dtype = dtype_of(group, plane); dtype != values.dtype()) {
    const Block room = context_.allocate(range.size() * size_of(dtype), Label::staging);
    const View rounded(room.data(), dtype, values.shape(), context_.device());
    kernels::copy({.x = values, .y = rounded}, context_.compute());
    return write_stored(group, segment, plane, range, rounded);
  }
  write_stored(group, segment, plane, range, values);
}

void OptimizerShards::write_stored(const ShardGroup& group, const Segment& segment, int plane,
                                   Range range, const ConstView& values) {
  if (swapped_ != nullptr) {
    swapped_->write(group, range, plane, values);
    return;
  }
  for (const StateSplit::Piece& piece : split_.pieces(group, segment, range)) {
    const Buffers& buffers = buffers_of(group, piece.tier);
    const Block& block = plane == kMasterPlane
                             ? buffers.master
                             : buffers.states[static_cast<size_t>(plane - kFirstStatePlane)];
    if (!block) continue;
    transfer(values.narrow(0, piece.range.begin - range.begin, piece.range.size()),
             view_of(block, dtype_of(group, plane), piece), context_.compute());
  }
}

View OptimizerShards::state(const ShardGroup& group, const Segment& segment, int index,
                            Range range) const {
  if (swapped_ != nullptr) return swapped_->read(group, range, kFirstStatePlane + index);
  const StateSplit::Piece piece = split_.piece(group, segment, range);
  return view_of(buffers_of(group, piece.tier).states[static_cast<size_t>(index)],
                 dtype_of(group, kFirstStatePlane + index), piece);
}

std::vector<UpdateSlice> OptimizerShards::slices(const ModelView& model) const {
  std::vector<UpdateSlice> slices;
  const auto add = [&](const ShardGroup& group, const Segment& segment,
                       const StateSplit::Piece& piece) {
    UpdateSlice& slice = slices.emplace_back();
    slice.group = group.index();
    slice.segment = segment.kind;
    slice.range = piece.range;
    slice.tier = piece.tier;
    const View model_weights = model(group, segment, piece.range);
    slice.model_tier = model_weights ? model_weights.tier() : Tier::nvme;
    slice.model_dtype = group.dtype();
    const bool has_own = has_master(group, segment, piece.range);
    if (has_own) slice.model_weights = model_weights;
    if (swapped_ != nullptr) return;
    slice.weights = has_own ? master(group, segment, piece.range) : model_weights;
    for (int i = 0; i < states_.count; ++i) {
      slice.states[static_cast<size_t>(i)] = state(group, segment, i, piece.range);
    }
  };
  for (const ShardGroup& group : groups_) {
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      for (const auto& piece : split_.pieces(group, segment, owned(segment))) {
        add(group, segment, piece);
      }
    }
  }
  return slices;
}

void OptimizerShards::settle() {
  if (swapped_ != nullptr) swapped_->settle();
}

void OptimizerShards::copy_own(const ShardGroup& group, const Segment& segment, Range range,
                               const OwnedValues& values, const View& out) {
  for (const auto& piece : split_.pieces(group, segment, range)) {
    for (int64_t begin = piece.range.begin; begin < piece.range.end;) {
      const ConstView part = values(group, segment, {begin, piece.range.end});
      copy_to_device(part, out.narrow(0, begin - range.begin, part.numel()), context_);
      begin += part.numel();
    }
  }
}

void OptimizerShards::read(const ShardGroup& group, const Placement& placement,
                           const OwnedValues& values, View out) {
  const Segment& segment = group.segment(placement.segment);
  for (int rank = 0; rank < split_.parts(); ++rank) {
    const Range inside = intersect(placement.range(), owned(segment, rank));
    if (inside.empty()) continue;
    const View target = out.narrow(0, inside.begin - placement.offset, inside.size());
    if (rank == rank_) copy_own(group, segment, inside, values, target);
    if (split_.parts() > 1) {
      communicator_.broadcast({.inout = target, .root = rank}, context_.compute()).wait();
    }
  }
  context_.compute()->synchronize();
}

}  // namespace zinc::zero
