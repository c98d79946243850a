// zero/optimizer_shards.h: master weights and optimizer states of the ranges that a rank updates.
//
// A rank owns one range of every trained segment: its shard, or the whole segment. The owned ranges
// of a group lie one after the other in flat buffers, so that each is one contiguous slice.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/shard_group.h"
#include "zero/swapped_shards.h"
#include "zero/weight_store.h"

namespace zinc::zero {

// Where an owned range's model weights lie: [range] of a group's arena.
using ModelView = std::function<View(const ShardGroup& group, const Segment& segment, Range range)>;

class OptimizerShards {
 public:
  // `sharded`: false where every rank updates everything. `tier`: where the buffers live; off the
  // device, or with `own_master`, there are always master weights. On the tier nvme they are those
  // of `swapped`, which must outlive this.
  OptimizerShards(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                  Context& context, int num_states, bool sharded, Tier tier = Tier::device,
                  SwappedShards* swapped = nullptr, bool own_master = false);

  // This rank's part of a segment; the whole of it where nothing is sharded.
  Range owned(const Segment& segment) const { return owned(segment, rank_); }
  bool has_master(const ShardGroup& group) const;
  // An owned range of the master weights: only where has_master(). In the shards' tier; from swap
  // space in host memory, a copy until the next call, which waits.
  View master(const ShardGroup& group, const Segment& segment, Range range) const;
  // Values of an owned range, [range] f32 (f64 for f64 models) on the device, for the master
  // weights. On the compute stream.
  void write_master(const ShardGroup& group, const Segment& segment, Range range,
                    const ConstView& values);
  View state(const ShardGroup& group, const Segment& segment, int index, Range range) const;
  std::vector<UpdateSlice> slices(const ModelView& model) const;

  // The parameter's values from their owners, on every rank: flat [numel] into `out`. Collective
  // where sharded; waits.
  void read(const ShardGroup& group, const Placement& placement, const OwnedValues& values,
            View out);

 private:
  struct Buffers {
    DType wide = DType::f32;
    Block master;
    std::vector<Block> states;
  };
  Range owned(const Segment& segment, int rank) const;
  int64_t offset_of(const ShardGroup& group, const Segment& segment) const;
  View slice_of(const Block& block, DType dtype, int64_t offset, int64_t numel) const;

  const std::vector<ShardGroup>& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  int num_states_;
  int parts_;
  int rank_;
  Tier tier_;
  SwappedShards* swapped_;
  std::vector<Buffers> buffers_;
};

}  // namespace zinc::zero
