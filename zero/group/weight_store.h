// zero/group/weight_store.h: where a rank keeps model weights, master weights and optimizer states
// between uses.
//
//   model weights   on every rank                              gathered for use   stages
//   whole           whole                                      never              0 to 2
//   sharded         its shards, and persistent segments whole  group by group     3
//
// Gathered copies are in gathered_weights.h. Values go in and out through weight_values.h. All
// calls come from the issuing thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "zero/group/optimizer_shards.h"
#include "zero/group/parameter_shards.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

struct WeightStoreOptions {
  bool shard_weights = false;          // the table above
  StateSplit split;                    // tiers of master weights and states
  optim::States states{.count = 2};    // states of the optimizer, per trained element
  bool shard_optimizer = false;        // a rank has only its shards of master weights and states
  ParameterShardOptions parameters{};  // with sharded weights: where the shards live
  SwappedShards* swapped = nullptr;    // tier nvme: master weights and states; outlives the store
};

class WeightStore {
 public:
  // `groups`, `communicator` and `context` must outlive this. Values are undefined until they are
  // loaded.
  WeightStore(const ShardGroups& groups, comm::Communicator& communicator, Context& context,
              const WeightStoreOptions& options);
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  const WeightStoreOptions& options() const { return options_; }
  OptimizerShards& optimizer() { return optimizer_; }
  ParameterShards* shards() { return shards_.get(); }  // null: weights are whole
  bool keeps_whole(SegmentKind kind) const { return shards_ == nullptr || is_persistent(kind); }
  // True if shards are off the device between uses.
  bool offloads() const { return options_.parameters.tier != Tier::device; }

  // A range of `segment` in a block that holds all segments of the group that are kept whole, or
  // all others, whichever `segment` is one of.
  View view_of(const ShardGroup& group, const Block& block, const Segment& segment,
               Range range) const;
  // A range of a segment as this rank keeps it: the segment, or this rank's shard. A shard is in
  // the shard's tier, and not in swap space.
  View kept(const ShardGroup& group, const Segment& segment, Range range) const;

  // The slices that this rank updates, group after group. Their views stay until hand_over().
  const std::vector<UpdatedRange>& slices() const { return slices_; }
  // Takes updated values of a slice whose model_tier is nvme. `values`: [range.size()] model_dtype
  // in any memory tier, as work on `stream` leaves them. Ranges come in ascending order. Throws
  // IoError.
  void take_updated(int group, Range range, const ConstView& values, StreamRef stream);
  // An update's values begin to come. settle_updates() ends them, and waits for the disk. Throws
  // IoError.
  void expect_updates();
  void settle_updates();
  // Frees the memory that reads and writes of values keep for swap space.
  void settle();

  // Gives the model's own values, whole, with the memory they lie in. Empty if they are sharded.
  // The store cannot be used afterwards.
  std::vector<std::pair<autograd::Parameter*, Tensor>> hand_over();

  // Traffic of the model's own weights in swap space.
  offload::SwapTraffic swap_traffic() const;

 private:
  int64_t bytes_before(const ShardGroup& group, const Segment& segment) const;

  const ShardGroups& groups_;
  Context& context_;
  const WeightStoreOptions options_;
  OptimizerShards optimizer_;
  std::unique_ptr<ParameterShards> shards_;
  ByGroup<Block> kept_;  // the segments that this rank keeps whole
  std::vector<UpdatedRange> slices_;
};

}  // namespace zinc::zero
