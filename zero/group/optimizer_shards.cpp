#include "zero/group/optimizer_shards.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/decode.h"
#include "kernels/encode.h"
#include "kernels/fill.h"

namespace zinc::zero {
namespace {

// Copies x to y on the compute stream. x: stored values in any memory tier. y: its elements on the
// device, in any float dtype. Both contiguous. On a GPU, host values that change their dtype pass
// through a staging block on the device.
void copy_to_device(const ConstView& x, const Encoding& encoding, const View& y, Context& context) {
  const StreamRef stream = context.compute();
  const auto convert = [&](const ConstView& from) {
    if (encoding.is_plain()) return kernels::copy({.x = from, .y = y}, stream);
    kernels::decode({.x = from, .format = encoding.format, .y = y}, stream);
  };
  if (x.tier() != Tier::pinned_host || context.device().is_cpu()) return convert(host_memory(x));
  if (x.dtype() == y.dtype()) {
    transfer(x, y, stream);
    return;
  }
  const Block room = context.allocate(x.bytes(), Label::staging);
  const View arrived(room.data(), x.dtype(), x.shape(), context.device());
  transfer(x, arrived, stream);
  convert(arrived);
}

// x: [n] f32 on the device. y: [numel_of(n)] there. Waits for the compute stream.
void encode_on_host(const ConstView& x, const Encoding& encoding, const View& y, Context& context) {
  if (context.device().meta) return;
  if (context.device().is_cpu()) {
    context.compute()->synchronize();
    return kernels::encode({.x = x, .format = encoding.format, .y = y});
  }
  std::vector<std::byte> values(static_cast<size_t>(x.bytes()));
  std::vector<std::byte> encoded(static_cast<size_t>(y.bytes()));
  download(x, values.data(), context.compute());
  kernels::encode({.x = View(values.data(), x.dtype(), x.shape(), kCpu),
                   .format = encoding.format,
                   .y = View(encoded.data(), y.dtype(), y.shape(), kCpu)});
  upload(encoded.data(), y, context.compute());
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
      if (group.dtype() != encoding(group, kMasterPlane).dtype || tier != Tier::device ||
          own_master) {
        buffers.master = make_plane(group, tier, kMasterPlane);
      }
      for (int i = 0; i < states.count + states.in_whole; ++i) {
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
  const Encoding stored = encoding(group, plane);
  Plane made{.block = context_.allocate(stored.bytes_of(places.size()), Label::optimizer, tier),
             .first = places.begin};
  const OwnedRange all{.range = {0, places.size()}, .tier = tier, .place = made.first};
  kernels::fill({.y = host_memory(view_of(made, stored, all))}, context_.compute());
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

View OptimizerShards::view_of(const Plane& plane, const Encoding& encoding,
                              const OwnedRange& slice) const {
  const View all(plane.block.data(), encoding.dtype,
                 Shape{plane.block.bytes() / size_of(encoding.dtype)}, context_.device(),
                 slice.tier);
  const int64_t begin = slice.place - plane.first;
  return encoding.part(all, {begin, begin + slice.range.size()});
}

View OptimizerShards::master(const OwnedRange& slice) const {
  const ShardGroup& group = groups_[slice.group];
  if (swapped_ != nullptr) return swapped_->read(group, slice.range, kMasterPlane);
  return view_of(buffers_of(slice).master, encoding(group, kMasterPlane), slice);
}

View OptimizerShards::state(const OwnedRange& slice, int plane) const {
  const ShardGroup& group = groups_[slice.group];
  bug_check(state_planes(states_, slice.segment).has(plane), "group ", group.name(),
            " has no plane ", plane, " in the segment of ", name_of(slice.segment));
  if (swapped_ != nullptr) return swapped_->read(group, slice.range, plane);
  return view_of(buffers_of(slice).states[static_cast<size_t>(plane - kFirstStatePlane)],
                 encoding(group, plane), slice);
}

void OptimizerShards::write(const ShardGroup& group, const Segment& segment, int plane, Range range,
                            const ConstView& values) {
  const Encoding stored = encoding(group, plane);
  if (stored.dtype != values.dtype()) {
    const Block room = context_.allocate(stored.bytes_of(range.size()), Label::staging);
    const View narrow = stored.view(room, 0, {0, range.size()}, context_.device());
    if (stored.is_plain()) {
      kernels::copy({.x = values, .y = narrow}, context_.compute());
    } else {
      encode_on_host(values, stored, narrow, context_);
    }
    return write_stored(group, segment, plane, range, narrow);
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
    const Encoding stored = encoding(group, plane);
    transfer(stored.part(values, piece.range.from(range.begin)), view_of(to, stored, piece),
             context_.compute());
  }
}

std::vector<UpdatedRange> OptimizerShards::slices(const ModelView& model) const {
  std::vector<UpdatedRange> slices;
  for (const OwnedRange& of : split_.slices(groups_, rank_)) {
    UpdatedRange& slice = slices.emplace_back(UpdatedRange{of});
    const View model_weights = model(of);
    slice.model_tier = model_weights ? model_weights.tier() : Tier::nvme;
    slice.model_dtype = groups_[of.group].dtype();
    slice.is_rounded = slice.model_dtype != encoding(groups_[of.group], kMasterPlane).dtype;
    if (has_master(of)) slice.model_weights = model_weights;
    if (swapped_ == nullptr) slice.weights = has_master(of) ? master(of) : model_weights;
    const Planes planes = state_planes(states_, of.segment);
    for (int plane = planes.begin; plane < planes.end; ++plane) {
      const auto i = static_cast<size_t>(plane - planes.begin);
      slice.encodings[i] = encoding(groups_[of.group], plane);
      if (swapped_ == nullptr) slice.states[i] = state(of, plane);
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
      const ConstView part = values.views(piece.part({begin, piece.range.end}));
      const int64_t numel =
          std::min(values.encoding.elements_of(part.numel()), piece.range.end - begin);
      copy_to_device(part, values.encoding, out.narrow(0, begin - range.begin, numel), context_);
      begin += numel;
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
