// zero/layout/state_split.h: which master weights, optimizer states and sums of gradients of a rank
// are on the device, and which are not.
//
// Note [Split states]
// With offload_optimizer.ratio below 1 a share of what a rank owns stays on the device. It is the
// first part in the order of the layout, group after group; the cut is at a multiple of kNormChunk
// within one group, at the same place on every rank. Backward ends with the groups at the start:
// their sums would reach the host last, with nothing left to hide the copies behind, and now need
// not travel at all, while those that are complete early leave during backward. In the step the
// device updates its part beside the CPU, which updates the rest; every element's update depends on
// that element alone and the norm is the same for every partition, so the cut changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/view.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

class StateSplit {
 public:
  // Part of what a rank owns, in one tier. What it owns of a group in one tier lies one after the
  // other there.
  struct Piece {
    Tier tier = Tier::device;
    Range range;        // of the group's arena, not empty
    int64_t place = 0;  // of its first element, in elements
  };

  // `parts`: owners of each segment, by equal shards. `tier`: where the share [0, 1] of the
  // elements that are updated lives at least, as little more as the cut allows.
  StateSplit(const std::vector<ShardGroup>& groups, int parts, Tier tier, double share);

  int parts() const { return parts_; }
  // Elements that a rank owns of a group in one tier: trained ones, with padding.
  int64_t numel(const ShardGroup& group, Tier tier) const;
  // Whether anything is off the device.
  bool leaves_device() const { return leaves_device_; }

  // A range that is part of one shard of a segment, by tier, in order.
  std::vector<Piece> pieces(const ShardGroup& group, const Segment& segment, Range range) const;
  // The same where all of it is in one tier: InternalError otherwise.
  Piece piece(const ShardGroup& group, const Segment& segment, Range range) const;

 private:
  int parts_;
  Tier tier_;
  bool leaves_device_ = false;
  std::vector<int64_t> on_device_;  // by group: the first elements that a rank owns
};

}  // namespace zinc::zero
