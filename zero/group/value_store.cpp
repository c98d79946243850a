#include "zero/group/value_store.h"

#include <algorithm>

#include "zero/group/weight_loading.h"
#include "zero/tiers/host_memory.h"

namespace zinc::zero {

ValueStore::ValueStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                       Context& context, const WeightStoreOptions& options, bool own_master)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      optimizer_(groups, communicator, context, options.num_states, options.split, options.swapped,
                 own_master) {}

OwnedValues ValueStore::masters() {
  return [this](const ShardGroup& group, const Segment& segment, Range range) {
    return master_view(group, segment, range);
  };
}

void ValueStore::read_state(ParameterIndex parameter, int state, View out) {
  read_owned(parameter, values_of(kFirstStatePlane + state), out);
}

void ValueStore::read_owned(ParameterIndex parameter, const OwnedValues& values, View out) {
  require_trained(at(parameter));
  optimizer_.read(group_of(parameter), at(parameter), values, out);
}

OwnedValues ValueStore::values_of(int plane) {
  if (plane == kMasterPlane) return masters();
  return [this, plane](const ShardGroup& group, const Segment& segment, Range range) {
    return optimizer_.state(group, segment, plane - kFirstStatePlane, range);
  };
}

void ValueStore::read_own(ParameterIndex parameter, int plane, Range range, View out) {
  const ShardGroup& group = group_of(parameter);
  const Segment& segment = group.segment(at(parameter).segment);
  optimizer_.copy_own(group, segment, range, values_of(plane), out);
  context_.compute()->synchronize();
}

ConstView ValueStore::own_in_place(ParameterIndex parameter, int plane, Range range) {
  const ShardGroup& group = group_of(parameter);
  const Segment& segment = group.segment(at(parameter).segment);
  // What comes from swap space lies in memory that the next call uses again.
  const bool is_resident = options_.swapped == nullptr && options_.parameters.tier != Tier::nvme;
  if (!is_resident || context_.device().meta) return {};
  const std::vector<StateSplit::Piece> pieces = options_.split.pieces(group, segment, range);
  if (pieces.size() != 1) return {};
  // Frozen values lie where the model has them, whatever the split says of the segment.
  const ConstView there = values_of(plane)(group, segment, range);
  if (there.tier() != Tier::pinned_host && !context_.device().is_cpu()) return {};
  const ConstView values = host_memory(there);
  return values.dtype() == group.wide_dtype() && values.numel() == range.size() ? values
                                                                                : ConstView();
}

void ValueStore::write_master(ParameterIndex parameter, ConstView values) {
  come_to_rest();
  const Placement& placement = at(parameter);
  for (const Range& range : kept_ranges(group_of(parameter), placement)) {
    if (range.empty()) continue;
    store(group_of(parameter), placement, range,
          values.narrow(0, range.begin - placement.offset, range.size()));
  }
  context_.compute()->synchronize();
}

// Values of a kept range of one parameter: to the model, and the owned part to the master weights.
void ValueStore::store(const ShardGroup& group, const Placement& placement, Range range,
                       const ConstView& values) {
  const Segment& segment = group.segment(placement.segment);
  store_model(group, segment, range, values);
  if (!optimizer_.has_master(group) || !is_trained(placement.segment)) return;
  const Range owned = intersect(range, optimizer_.owned(segment));
  if (owned.empty()) return;
  optimizer_.write(group, segment, kMasterPlane, owned,
                   values.narrow(0, owned.begin - range.begin, owned.size()));
}

void ValueStore::load(const std::vector<ReadValues>& planes, const HasValues& has) {
  come_to_rest();
  for (const ShardGroup& group : groups_) {
    for (const Placement& placement : group.placements()) {
      if (placement.range().empty()) continue;
      for (const Range& range : kept_ranges(group, placement)) {
        load(group, placement, range, planes, has);
      }
    }
  }
}

// Piece by piece, all planes of one before the next: in swap space they lie together.
void ValueStore::load(const ShardGroup& group, const Placement& placement, Range range,
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
