// zero/layout/state_split.h: splits a rank's master weights, optimizer states and gradient sums
// into those on the device and those on another tier.
//
// Note [Split states]
// With offload_optimizer.ratio below 1, a share of the states that a rank owns stays on the device.
// The share is the first part in the order of the layout, group after group. The cut is at a
// multiple of kNormChunk within one group, at the same place on every rank.
//
// Why the first part: backward ends with the first groups. Their sums would reach the host last,
// with no compute left to hide the copies behind. On the device these sums need no copy. The sums
// of the other groups are complete earlier, and are copied to the host during backward.
//
// In the step, the device updates its part while the CPU updates the rest. The update of an element
// depends on that element alone, and the norm is the same for every partition. So the cut changes
// no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/view.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// Trained elements that a rank owns, in one segment and one tier. Everything that a rank owns of a
// group in one tier lies there in one run.
struct OwnedRange {
  int group = 0;
  SegmentKind segment = SegmentKind::trained;
  Range range;  // in the group's arena, not empty
  Tier tier = Tier::device;
  int64_t place = 0;  // elements of the group before the first one of the slice, in this tier

  // `inside` must lie in `range`.
  OwnedRange part(Range inside) const {
    return {group, segment, inside, tier, place + inside.begin - range.begin};
  }
};

class StateSplit {
 public:
  // `parts`: into how many equal shards each segment is cut, one owner each. `share` in [0, 1]: the
  // part of the elements of a rank that lives in `tier`, rounded up to whole chunks.
  StateSplit(const ShardGroups& groups, int parts, Tier tier, double share);

  int parts() const { return parts_; }
  // The trained elements, with padding, that a rank owns of a group in one tier.
  int64_t numel(const ShardGroup& group, Tier tier) const;
  // True if any element is off the device.
  bool leaves_device() const { return leaves_device_; }

  // Cuts `range` by tier, in order. `range` must lie in one shard of `segment`.
  std::vector<OwnedRange> cut(const ShardGroup& group, const Segment& segment, Range range) const;
  // All that an owner has, group after group.
  std::vector<OwnedRange> slices(const ShardGroups& groups, int owner) const;

 private:
  int parts_;
  Tier tier_;
  bool leaves_device_ = false;
  ByGroup<int64_t> on_device_;  // elements of a rank that are on the device
};

}  // namespace zinc::zero
