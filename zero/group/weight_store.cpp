#include "zero/group/weight_store.h"

#include <algorithm>
#include <optional>

#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/decode.h"
#include "zero/group/weight_encoding.h"
#include "zero/group/weight_loading.h"

namespace zinc::zero {

WeightStore::WeightStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                         Context& context, const WeightStoreOptions& options, bool own_master)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      optimizer_(groups, communicator, context, options.states, options.split, options.swapped,
                 own_master) {}

OwnedValues WeightStore::masters() {
  return [this](const Slice& slice) { return master_view(slice); };
}

void WeightStore::read_state(ParameterIndex parameter, int state, View out) {
  read_owned(parameter, values_of(kFirstStatePlane + state), out);
}

void WeightStore::read_owned(ParameterIndex parameter, const OwnedValues& values, View out) {
  require_trained(at(parameter));
  optimizer_.read(group_of(parameter), at(parameter), values, out);
}

OwnedValues WeightStore::values_of(int plane) {
  if (plane == kMasterPlane) return masters();
  return [this, plane](const Slice& slice) {
    return optimizer_.state(slice, plane - kFirstStatePlane);
  };
}

void WeightStore::read_own(ParameterIndex parameter, int plane, Range range, View out) {
  const ShardGroup& group = group_of(parameter);
  const Segment& segment = group.segment(at(parameter).segment);
  optimizer_.copy_own(group, segment, range, values_of(plane), out);
  context_.compute()->synchronize();
  forget_decoded();
}

ConstView WeightStore::own_in_place(ParameterIndex parameter, int plane, Range range) {
  const ShardGroup& group = group_of(parameter);
  const Segment& segment = group.segment(at(parameter).segment);
  // Values from swap space lie in memory that the next call uses again.
  const bool is_resident = options_.swapped == nullptr && options_.parameters.tier != Tier::nvme;
  if (!is_resident || context_.device().meta) return {};
  const std::vector<Slice> pieces = options_.split.cut(group, segment, range);
  if (pieces.size() != 1 || is_quantized(segment.kind)) return {};
  // Frozen values lie where the model keeps them, whatever `split` says of the segment.
  const ConstView there = values_of(plane)(pieces.front());
  if (there.tier() != Tier::pinned_host && !context_.device().is_cpu()) return {};
  const ConstView values = host_memory(there);
  return values.numel() == range.size() ? values : ConstView();
}

void WeightStore::write_master(ParameterIndex parameter, ConstView values) {
  come_to_rest();
  const Placement& placement = at(parameter);
  if (is_quantized(placement.segment)) {
    return load_encoded(group_of(parameter), placement,
                        [&](const autograd::Parameter&, int64_t begin, const View& out) {
                          const Block room = context_.allocate(out.bytes(), Label::staging);
                          const View rounded(room.data(), out.dtype(), out.shape(),
                                             context_.device());
                          kernels::copy({.x = values.narrow(0, begin, out.numel()), .y = rounded},
                                        context_.compute());
                          download(rounded, out.data(), context_.compute());
                        });
  }
  for (const Range& range : kept_ranges(group_of(parameter), placement)) {
    if (range.empty()) continue;
    store(group_of(parameter), placement, range,
          values.narrow(0, range.begin - placement.offset, range.size()));
  }
  context_.compute()->synchronize();
}

// Writes the values of a kept range to the model, and the owned part to the master weights.
void WeightStore::store(const ShardGroup& group, const Placement& placement, Range range,
                        const ConstView& values) {
  const Segment& segment = group.segment(placement.segment);
  store_model(group, segment, range, values);
  if (!optimizer_.has_master(group) || !is_trained(placement.segment)) return;
  const Range owned = intersect(range, optimizer_.owned(segment));
  if (owned.empty()) return;
  optimizer_.write(group, segment, kMasterPlane, owned,
                   values.narrow(0, owned.begin - range.begin, owned.size()));
}

void WeightStore::load(const std::vector<ReadValues>& planes, const HasValues& has) {
  come_to_rest();
  for (const ShardGroup& group : groups_) {
    for (const Placement& placement : group.placements()) {
      if (placement.range().empty()) continue;
      if (is_quantized(placement.segment)) {
        if (!has || has(*placement.parameter, kMasterPlane)) {
          load_encoded(group, placement, planes[kMasterPlane]);
        }
        continue;
      }
      for (const Range& range : kept_ranges(group, placement)) {
        load(group, placement, range, planes, has);
      }
    }
  }
}

void WeightStore::load_encoded(const ShardGroup& group, const Placement& placement,
                               const ReadValues& read) {
  const Segment& segment = group.segment(placement.segment);
  const bool is_meta = context_.device().meta;
  std::optional<WeightEncoder> encoder;
  if (!is_meta) encoder.emplace(*placement.parameter, read);
  for (const Range& range : kept_ranges(group, placement)) {
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
      // On a meta device every piece takes as much.
      if (is_meta) break;
    }
  }
}

ConstView WeightStore::begin_use(ParameterIndex parameter, const ConstView& stored) {
  const ShardGroup& group = group_of(parameter);
  const Placement& placement = at(parameter);
  const Shape& shape = placement.parameter->shape();
  if (!is_quantized(placement.segment)) return stored.reshape(shape);
  Use& use = uses_[{parameter.group, parameter.position}];
  const bool is_first = use.count == 0;
  if (is_first) {
    use.values = context_.allocate(shape.numel() * size_of(group.dtype()), Label::parameters);
  }
  const View values(use.values.data(), group.dtype(), Shape{shape.numel()}, context_.device());
  if (is_first) {
    kernels::decode({.x = stored, .format = *group.block_format(), .y = values},
                    context_.compute());
  }
  ++use.count;
  return values.reshape(shape);
}

void WeightStore::end_use(ParameterIndex parameter) noexcept {
  const auto use = uses_.find({parameter.group, parameter.position});
  if (use != uses_.end() && --use->second.count == 0) use->second.values.reset();
}

View WeightStore::decoded(const ShardGroup& group, Range range, const ConstView& stored) {
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

// Piece by piece, and all planes of a piece before the next one: planes lie together in swap space.
void WeightStore::load(const ShardGroup& group, const Placement& placement, Range range,
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
    const Range owned = intersect(piece, optimizer_.owned(segment));
    for (size_t plane = kFirstStatePlane; plane < planes.size(); ++plane) {
      if (!is_there(plane)) continue;
      load_range(context_, planes[plane], placement, owned, [&](const View& values) {
        optimizer_.write(group, segment, static_cast<int>(plane), owned, values);
      });
    }
    // On a meta device every piece takes as much.
    if (context_.device().meta) return;
  }
}

}  // namespace zinc::zero
