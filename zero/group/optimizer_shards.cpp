#include "zero/group/optimizer_shards.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace zinc::zero {
namespace {

// Copies x to y on the compute stream. x: any memory tier. y: on the device, x's shape, any float
// dtype. Both contiguous. On a GPU, host values that change their dtype pass through a staging
// block on the device.
void copy_to_device(const ConstView& x, const View& y, Context& context) {
  const StreamRef stream = context.compute();
  if (x.tier() != Tier::pinned_host || context.device().is_cpu()) {
    kernels::copy({.x = host_memory(x), .y = y}, stream);
    return;
  }
  if (x.dtype() == y.dtype()) {
    transfer(x, y, stream);
    return;
  }
  const Block room = context.allocate(x.bytes(), Label::staging);
  const View arrived(room.data(), x.dtype(), x.shape(), context.device());
  transfer(x, arrived, stream);
  kernels::copy({.x = arrived, .y = y}, stream);
}

}  // namespace

OptimizerShards::OptimizerShards(const ShardGroups& groups, comm::Communicator& communicator,
                                 Context& context, const optim::States& states, StateSplit split,
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
      if (split_.numel(group, tier) == 0) continue;
      Buffers& buffers = buffers_[group][static_cast<size_t>(tier)];
      if (group.dtype() != group.wide_dtype() || tier != Tier::device || own_master) {
        buffers.master = make_plane(group, tier, kMasterPlane);
      }
      for (int i = 0; i < states.count + states.in_matrices; ++i) {
        buffers.states.push_back(make_plane(group, tier, kFirstStatePlane + i));
      }
    }
  }
}

// Filled with zeros.
OptimizerShards::Plane OptimizerShards::make_plane(const ShardGroup& group, Tier tier, int plane) {
  Range places{};
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind) || !has_plane(states_, segment.kind, plane)) continue;
    for (const OwnedRange& slice : split_.cut(group, segment, owned(segment))) {
      if (slice.tier != tier) continue;
      if (places.empty()) places = {slice.place, slice.place};
      places.end = slice.place + slice.range.size();
    }
  }
  if (places.empty()) return {};
  const DType dtype = dtype_of(group, plane);
  Plane made{.block = context_.allocate(places.size() * size_of(dtype), Label::optimizer, tier),
             .first = places.begin};
  const OwnedRange all{.range = {0, places.size()}, .tier = tier, .place = made.first};
  kernels::fill({.y = host_memory(view_of(made, dtype, all))}, context_.compute());
  return made;
}

const OptimizerShards::Buffers& OptimizerShards::buffers_of(const OwnedRange& slice) const {
  return buffers_[slice.group][static_cast<size_t>(slice.tier)];
}

bool OptimizerShards::has_master(const ShardGroup& group) const {
  const ByTier& tiers = buffers_[group];
  return swapped_ != nullptr || std::any_of(tiers.begin(), tiers.end(), [](const Buffers& buffers) {
           return static_cast<bool>(buffers.master.block);
         });
}

bool OptimizerShards::has_master(const OwnedRange& slice) const {
  return swapped_ != nullptr || static_cast<bool>(buffers_of(slice).master.block);
}

Range OptimizerShards::owned(const Segment& segment, int rank) const {
  return segment.shard(rank, split_.parts());
}

View OptimizerShards::view_of(const Plane& plane, DType dtype, const OwnedRange& slice) const {
  return View(plane.block.data(), dtype, Shape{plane.block.bytes() / size_of(dtype)},
              context_.device(), slice.tier)
      .narrow(0, slice.place - plane.first, slice.range.size());
}

View OptimizerShards::master(const OwnedRange& slice) const {
  const ShardGroup& group = groups_[slice.group];
  if (swapped_ != nullptr) return swapped_->read(group, slice.range, kMasterPlane);
  return view_of(buffers_of(slice).master, group.wide_dtype(), slice);
}

View OptimizerShards::state(const OwnedRange& slice, int plane) const {
  const ShardGroup& group = groups_[slice.group];
  bug_check(state_planes(states_, slice.segment).has(plane), "group ", group.name(),
            " has no plane ", plane, " in the segment of ", name_of(slice.segment));
  if (swapped_ != nullptr) return swapped_->read(group, slice.range, plane);
  return view_of(buffers_of(slice).states[static_cast<size_t>(plane - kFirstStatePlane)],
                 dtype_of(group, plane), slice);
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
  for (const OwnedRange& piece : split_.cut(group, segment, range)) {
    const Buffers& buffers = buffers_of(piece);
    const Plane& to = plane == kMasterPlane
                          ? buffers.master
                          : buffers.states[static_cast<size_t>(plane - kFirstStatePlane)];
    if (!to.block) continue;
    transfer(values.narrow(0, piece.range.begin - range.begin, piece.range.size()),
             view_of(to, dtype_of(group, plane), piece), context_.compute());
  }
}

std::vector<UpdatedRange> OptimizerShards::slices(const ModelView& model) const {
  std::vector<UpdatedRange> slices;
  for (const OwnedRange& of : split_.slices(groups_, rank_)) {
    UpdatedRange& slice = slices.emplace_back(UpdatedRange{of});
    const View model_weights = model(of);
    slice.model_tier = model_weights ? model_weights.tier() : Tier::nvme;
    slice.model_dtype = groups_[of.group].dtype();
    if (has_master(of)) slice.model_weights = model_weights;
    if (swapped_ != nullptr) continue;
    slice.weights = has_master(of) ? master(of) : model_weights;
    const Planes planes = state_planes(states_, of.segment);
    for (int plane = planes.begin; plane < planes.end; ++plane) {
      slice.states[static_cast<size_t>(plane - planes.begin)] = state(of, plane);
    }
  }
  return slices;
}

void OptimizerShards::settle() {
  if (swapped_ != nullptr) swapped_->settle();
}

void OptimizerShards::copy_own(const ShardGroup& group, const Segment& segment, Range range,
                               const OwnedValues& values, const View& out) {
  for (const OwnedRange& piece : split_.cut(group, segment, range)) {
    for (int64_t begin = piece.range.begin; begin < piece.range.end;) {
      const ConstView part = values(piece.part({begin, piece.range.end}));
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
