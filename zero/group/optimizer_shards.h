// zero/group/optimizer_shards.h: master weights and optimizer states of the ranges that a rank
// updates.
//
// A rank owns one range of every trained segment: its shard, or the whole segment. The owned ranges
// of a group lie one after the other in flat buffers, so that each is one contiguous slice.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

// Where an owned range's model weights lie: [range] of a group's arena.
using ModelView = std::function<View(const ShardGroup& group, const Segment& segment, Range range)>;

class OptimizerShards {
 public:
  // `split`: who owns what, and where it lives; off the device, or with `own_master`, there are
  // always master weights. On the tier nvme they are those of `swapped`, which must outlive this.
  OptimizerShards(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                  Context& context, int num_states, StateSplit split,
                  SwappedShards* swapped = nullptr, bool own_master = false);

  // This rank's part of a segment; the whole of it where nothing is sharded.
  Range owned(const Segment& segment) const { return owned(segment, rank_); }
  // Of anything in the group; of a trained range in one tier.
  bool has_master(const ShardGroup& group) const;
  bool has_master(const ShardGroup& group, const Segment& segment, Range range) const;
  // An owned range of the master weights in one tier: only where has_master(). From swap space as
  // SwappedShards::read() gives them.
  View master(const ShardGroup& group, const Segment& segment, Range range) const;
  // Values of an owned range, [range] f32 (f64 for f64 models) on the device, for a plane: the
  // master weights where there are any, or a state. On the compute stream.
  void write(const ShardGroup& group, const Segment& segment, int plane, Range range,
             const ConstView& values);
  // In one tier; from swap space likewise.
  View state(const ShardGroup& group, const Segment& segment, int index, Range range) const;
  std::vector<UpdateSlice> slices(const ModelView& model) const;
  // What master(), state() and write_master() keep of swap space in host memory is given back.
  void settle();

  // Values of an owned range to `out` on the device, in pieces of one tier each. On the compute
  // stream.
  void copy_own(const ShardGroup& group, const Segment& segment, Range range,
                const OwnedValues& values, const View& out);
  // The parameter's values from their owners, on every rank: flat [numel] into `out`. Collective
  // where sharded; waits.
  void read(const ShardGroup& group, const Placement& placement, const OwnedValues& values,
            View out);

 private:
  // Of a group, in one tier.
  struct Buffers {
    Block master;
    std::vector<Block> states;
  };
  using ByTier = std::array<Buffers, kNumTiers>;
  Range owned(const Segment& segment, int rank) const;
  const Buffers& buffers_of(const ShardGroup& group, Tier tier) const;
  View view_of(const Block& block, const ShardGroup& group, const StateSplit::Piece& piece) const;

  const std::vector<ShardGroup>& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  int num_states_;
  const StateSplit split_;
  int rank_;
  SwappedShards* swapped_;
  std::vector<ByTier> buffers_;  // by group
};

}  // namespace zinc::zero
