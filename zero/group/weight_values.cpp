#include "zero/group/weight_values.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/decode.h"

namespace zinc::zero {
namespace {

// Reads elements `piece` of a parameter, counted in its arena, into a staging buffer and calls
// store(values). `piece`: kPieceNumel elements at most. values: [piece.size()] f32 (f64 models:
// f64) on the device. Waits for the compute stream. On a meta device nothing is read.
template <class Store>
void load_range(Context& context, const ReadValues& read, const Placement& placement, Range piece,
                const Store& store) {
  if (piece.empty()) return;
  const autograd::Parameter& parameter = *placement.parameter;
  const int64_t begin = piece.begin - placement.offset;
  const DType wide = parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room = context.allocate(piece.size() * size_of(wide), Label::staging);
  const View values(room.data(), wide, Shape{piece.size()}, context.device());
  // Earlier work on this memory must end before the host fills it.
  if (!context.device().meta) context.compute()->synchronize();
  if (context.device().is_cuda() && !context.device().meta) {
    std::vector<std::byte> in_host(static_cast<size_t>(values.bytes()));
    read(parameter, begin, View(in_host.data(), wide, values.shape(), kCpu));
    upload(in_host.data(), values, context.compute());
  } else if (!context.device().meta) {
    read(parameter, begin, values);
  }
  store(values);
  context.compute()->synchronize();
}

}  // namespace

WeightValues::WeightValues(WeightStore& store, GatheredWeights& gathered, const ShardGroups& groups,
                           Context& context)
    : store_(store), gathered_(gathered), groups_(groups), context_(context) {}

View WeightValues::master_view(const OwnedRange& slice) {
  if (is_trained(slice.segment) && store_.optimizer().has_master(slice))
    return store_.optimizer().master(slice);
  const ShardGroup& group = groups_[slice.group];
  const Segment& segment = group.segment(slice.segment);
  const Range& range = slice.range;
  const View stored = store_.keeps_whole(segment.kind)
                          ? store_.kept(group, segment, range)
                          : store_.shards()->read(group, segment, range);
  if (!is_quantized(segment.kind)) return stored;
  // A read from swap space may give fewer values than were asked for.
  const int64_t there = stored.numel() / segment.encoding.chunk_numel * kNormChunk;
  return decoded(group, {range.begin, std::min(range.end, range.begin + there)}, stored);
}

OwnedValues WeightValues::masters() {
  return {.views = [this](const OwnedRange& slice) { return master_view(slice); }};
}

OwnedValues WeightValues::values_of(const ShardGroup& group, int plane) {
  if (plane == kMasterPlane) return masters();
  return {.views = [this, plane](
                       const OwnedRange& slice) { return store_.optimizer().state(slice, plane); },
          .encoding = store_.optimizer().encoding(group, plane)};
}

void WeightValues::read_master(ParameterIndex parameter, View out) {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
  const bool has_master = is_trained(placement.segment) && store_.optimizer().has_master(group);
  if (has_master || !store_.keeps_whole(placement.segment)) {
    store_.optimizer().read(group, placement, masters(), out);
  } else {
    const OwnedRange whole{
        .group = group.index(), .segment = placement.segment, .range = placement.range()};
    const View stored = store_.kept(group, group.segment(whole.segment), whole.range);
    kernels::copy(
        {.x = is_quantized(placement.segment) ? decoded(group, whole.range, stored) : stored,
         .y = out},
        context_.compute());
    context_.compute()->synchronize();
  }
  forget_decoded();
}

void WeightValues::read_state(ParameterIndex parameter, int plane, View out) {
  read_owned(parameter, values_of(groups_.of(parameter), plane), out);
}

void WeightValues::read_owned(ParameterIndex parameter, const OwnedValues& values, View out) {
  require_trained(groups_.at(parameter));
  store_.optimizer().read(groups_.of(parameter), groups_.at(parameter), values, out);
}

void WeightValues::read_own(ParameterIndex parameter, int plane, Range range, View out) {
  const ShardGroup& group = groups_.of(parameter);
  const Segment& segment = group.segment(groups_.at(parameter).segment);
  store_.optimizer().copy_own(group, segment, range, values_of(group, plane), out);
  context_.compute()->synchronize();
  forget_decoded();
}

ConstView WeightValues::own_in_place(ParameterIndex parameter, int plane, Range range) {
  const ShardGroup& group = groups_.of(parameter);
  const Segment& segment = group.segment(groups_.at(parameter).segment);
  // Values from swap space lie in memory that the next call uses again.
  const bool is_resident =
      store_.options().swapped == nullptr && store_.options().parameters.tier != Tier::nvme;
  if (!is_resident || context_.device().meta) return {};
  const std::vector<OwnedRange> pieces = store_.options().split.cut(group, segment, range);
  if (pieces.size() != 1 || is_quantized(segment.kind)) return {};
  // Frozen values lie where the model keeps them, whatever `split` says of the segment.
  const OwnedValues owned = values_of(group, plane);
  const ConstView there = owned.views(pieces.front());
  if (there.tier() != Tier::pinned_host && !context_.device().is_cpu()) return {};
  const ConstView values = host_memory(there);
  return values.numel() == owned.encoding.numel_of(range.size()) ? values : ConstView();
}

void WeightValues::write_master(ParameterIndex parameter, ConstView values) {
  gathered_.end_passes();
  const Placement& placement = groups_.at(parameter);
  if (is_quantized(placement.segment)) {
    return load_encoded(groups_.of(parameter), placement,
                        [&](const autograd::Parameter&, int64_t begin, const View& out) {
                          const Block room = context_.allocate(out.bytes(), Label::staging);
                          const View rounded(room.data(), out.dtype(), out.shape(),
                                             context_.device());
                          kernels::copy({.x = values.narrow(0, begin, out.numel()), .y = rounded},
                                        context_.compute());
                          download(rounded, out.data(), context_.compute());
                        });
  }
  const Range range = kept_range(groups_.of(parameter), placement);
  if (!range.empty()) {
    store(groups_.of(parameter), placement, range,
          values.narrow(0, range.begin - placement.offset, range.size()));
  }
  context_.compute()->synchronize();
}

Range WeightValues::kept_range(const ShardGroup& group, const Placement& placement) const {
  if (store_.keeps_whole(placement.segment)) return placement.range();
  return intersect(placement.range(), store_.shards()->own(group.segment(placement.segment)));
}

void WeightValues::store_model(const ShardGroup& group, const Segment& segment, Range range,
                               const ConstView& values) {
  if (store_.keeps_whole(segment.kind)) {
    kernels::copy({.x = values, .y = store_.kept(group, segment, range)}, context_.compute());
  } else {
    store_.shards()->write(group, segment, range, values);
  }
}

void WeightValues::store(const ShardGroup& group, const Placement& placement, Range range,
                         const ConstView& values) {
  const Segment& segment = group.segment(placement.segment);
  store_model(group, segment, range, values);
  if (!is_trained(placement.segment)) return;
  const Range owned = intersect(range, store_.optimizer().owned(segment));
  if (owned.empty()) return;
  const ConstView part = values.narrow(0, owned.begin - range.begin, owned.size());
  if (store_.optimizer().has_master(group)) {
    store_.optimizer().write(group, segment, kMasterPlane, owned, part);
  }
  const optim::States& states = store_.options().states;
  for (int i = 0; i < states.count; ++i) {
    const int plane = kFirstStatePlane + i;
    if (!states.are_weights[static_cast<size_t>(i)] || !has_plane(states, segment.kind, plane))
      continue;
    store_.optimizer().write(group, segment, plane, owned, part);
  }
}

void WeightValues::load(const std::vector<ReadValues>& planes, const HasValues& has) {
  gathered_.end_passes();
  for (const ShardGroup& group : groups_) {
    for (const Placement& placement : group.placements()) {
      if (placement.range().empty()) continue;
      if (is_quantized(placement.segment)) {
        if (!has || has(*placement.parameter, kMasterPlane)) {
          load_encoded(group, placement, planes[kMasterPlane]);
        }
        continue;
      }
      load(group, placement, kept_range(group, placement), planes, has);
    }
  }
  if (store_.shards() != nullptr) store_.shards()->settle();
}

void WeightValues::load_encoded(const ShardGroup& group, const Placement& placement,
                                const ReadValues& read) {
  const Segment& segment = group.segment(placement.segment);
  const bool is_meta = context_.device().meta;
  std::optional<autograd::WeightEncoder> encoder;
  if (!is_meta) encoder.emplace(*placement.parameter, read);
  const Range range = kept_range(group, placement);
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    const Block room = context_.allocate(segment.encoding.bytes_of(piece.size()), Label::staging);
    const View encoded = segment.encoding.view(room, 0, {0, piece.size()}, context_.device());
    if (!is_meta) {
      const auto bytes = encoder->encode(piece.begin - placement.offset, piece.size());
      upload(bytes.data(), encoded, context_.compute());
    }
    store_model(group, segment, piece, encoded);
    context_.compute()->synchronize();
    // On a meta device all pieces take the same bytes: one is enough.
    if (is_meta) break;
  }
}

View WeightValues::decoded(const ShardGroup& group, Range range, const ConstView& stored) {
  Block arrived;
  ConstView encoded = stored;
  if (stored.tier() != Tier::device) {
    arrived = context_.allocate(stored.bytes(), Label::staging);
    const View there(arrived.data(), stored.dtype(), stored.shape(), context_.device());
    transfer(stored, there, context_.compute());
    encoded = there;
  }
  const int64_t bytes = range.size() * size_of(group.dtype());
  if (decoded_.bytes() != bytes) {
    decoded_.reset();
    decoded_ = context_.allocate(bytes, Label::staging);
  }
  const View values(decoded_.data(), group.dtype(), Shape{range.size()}, context_.device());
  kernels::decode({.x = encoded, .format = *group.block_format(), .y = values}, context_.compute());
  return values;
}

// Loads piece by piece, and all planes of a piece before the next one: planes lie together in swap
// space.
void WeightValues::load(const ShardGroup& group, const Placement& placement, Range range,
                        const std::vector<ReadValues>& planes, const HasValues& has) {
  const auto is_there = [&](size_t plane) {
    return !has || has(*placement.parameter, static_cast<int>(plane));
  };
  const Segment& segment = group.segment(placement.segment);
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    if (is_there(kMasterPlane)) {
      load_range(context_, planes[kMasterPlane], placement, piece,
                 [&](const View& values) { store(group, placement, piece, values); });
    }
    if (!is_trained(placement.segment)) continue;
    const Range owned = intersect(piece, store_.optimizer().owned(segment));
    for (size_t plane = kFirstStatePlane; plane < planes.size(); ++plane) {
      const auto number = static_cast<int>(plane);
      if (!has_plane(store_.options().states, segment.kind, number) || !is_there(plane)) continue;
      load_range(context_, planes[plane], placement, owned, [&](const View& values) {
        store_.optimizer().write(group, segment, number, owned, values);
      });
    }
    // On a meta device all pieces take the same bytes: one is enough.
    if (context_.device().meta) return;
  }
}

}  // namespace zinc::zero
