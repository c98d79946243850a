// zero/group/shard_sums.h: sums of gradients of which a rank has its shards. The gradients are
// reduced over the ranks in every micro-batch. The table: group_sums.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "zero/group/group_sums.h"
#include "zero/group/sums_away.h"
#include "zero/group/swapped_gradients.h"

namespace zinc::zero {

// How the shards of a step's micro-batches become one sum on the device.
class ShardOrder {
 public:
  virtual ~ShardOrder() = default;
  // True: this micro-batch's reduction adds to what is kept. False: it overwrites.
  virtual bool adds(const MicroBatchTurn& turn) const = 0;
  // `kept`: what that reduction leaves behind `work`, a block of policy.kept. After the step's last
  // micro-batch it is the step's sum. Returns the work behind which that holds.
  virtual comm::Work add(Block& kept, comm::Work work, const MicroBatchTurn& turn,
                         StreamRef stream) = 0;
  virtual void discard() = 0;
};

// One sum, to which the micro-batches are added in turn.
class RunningSum final : public ShardOrder {
 public:
  bool adds(const MicroBatchTurn& turn) const override { return !turn.is_first(); }
  comm::Work add(Block&, comm::Work work, const MicroBatchTurn&, StreamRef) override {
    return work;
  }
  void discard() override {}
};

// The sums of the complete subtrees of micro-batches: GradientPolicy::tree_over_micro_batches.
class TreeOfSums final : public ShardOrder {
 public:
  explicit TreeOfSums(Reducer& reducer) : reducer_(reducer) {}
  bool adds(const MicroBatchTurn&) const override { return false; }
  // Two neighbouring subtrees of equal size are merged. After the last micro-batch the remaining
  // subtrees are merged from the smallest up.
  comm::Work add(Block& kept, comm::Work work, const MicroBatchTurn& turn,
                 StreamRef stream) override;
  void discard() override { subtrees_.clear(); }

 private:
  struct Subtree {
    int64_t micro_batches = 1;
    Block sum;
  };

  Reducer& reducer_;
  std::vector<Subtree> subtrees_;  // left to right
};

// The sums stay on the device.
class ShardSums : public GroupSums {
 public:
  ShardSums(const ShardGroup& group, Reducer& reducer, std::unique_ptr<ShardOrder> order);
  void add(const MicroBatchTurn&) final {}
  comm::Work reduce(const MicroBatchTurn& turn) override;
  View on_device(const OwnedRange& slice) override;
  void discard() final;

 protected:
  // Before a reduction on `stream` adds to kept().
  virtual void bring(const MicroBatchTurn&, StreamRef) {}
  // After the micro-batch's shard was added.
  virtual void leave(const MicroBatchTurn&) {}

  // Issues the reduction of a micro-batch to a block of `dtype`, and lets go of what backward
  // wrote.
  comm::Work scatter(const MicroBatchTurn& turn, const Block& shards, DType dtype, bool accumulate,
                     StreamRef stream);
  // Ranges of this rank's shards in such a block.
  View shard_of(const Block& shards, DType dtype, const Segment& segment) const;
  SumsAway::OnDevice ranges_of(const Block& shards, DType dtype) const;
  Block& kept() { return kept_; }

 private:
  std::unique_ptr<ShardOrder> order_;
  Block kept_;  // the shards of the trained segments, one after the other: policy.kept
};

// At the end of the step every rank gets the whole sums.
class GatheredSums final : public ShardSums {
 public:
  using ShardSums::ShardSums;
  void finish() override;  // collective
  View on_device(const OwnedRange& slice) override;
};

// The shards of the step's sums leave the device, but for the slices that stay there (Note [Split
// states]).
class LeavingShardSums : public ShardSums {
 public:
  // `all`: no slice of the group stays. `away` must outlive this.
  LeavingShardSums(const ShardGroup& group, Reducer& reducer, std::unique_ptr<ShardOrder> order,
                   SumsAway& away, bool all);
  void finished() final { away_.await(group().index(), reducer().context().compute()); }
  bool has_arrived() final { return away_.has_arrived(group().index()); }
  void await(StreamRef stream) final { away_.await(group().index(), stream); }

 protected:
  void leave(const MicroBatchTurn& turn) override;
  // Sends the values in `shards` away. `free`: lets go of the block behind the copies.
  void send(Block& shards, DType dtype, SumsAway::Turn turn, bool free);

 private:
  SumsAway& away_;
  const bool all_;
};

// The shard of each micro-batch leaves the device, and is added in host memory: Note [Sums in host
// memory]. Micro-batches that run side by side are summed on the device.
class HostShardSums final : public LeavingShardSums {
 public:
  HostShardSums(const ShardGroup& group, Reducer& reducer, std::unique_ptr<ShardOrder> order,
                SumsAway& host);
  comm::Work reduce(const MicroBatchTurn& turn) override;
};

// The sums leave for swap space after each micro-batch, or set of those that run side by side, and
// come back for the next: Note [Gradients on NVMe].
class SwappedShardSums final : public LeavingShardSums {
 public:
  SwappedShardSums(const ShardGroup& group, Reducer& reducer, std::unique_ptr<ShardOrder> order,
                   SwappedGradients& swapped);

 protected:
  void bring(const MicroBatchTurn& turn, StreamRef stream) override;
  void leave(const MicroBatchTurn& turn) override;

 private:
  SwappedGradients& swapped_;
};

}  // namespace zinc::zero
