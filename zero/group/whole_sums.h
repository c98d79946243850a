// zero/group/whole_sums.h: sums of gradients that hold all elements of a group on every rank until
// the step. They are reduced over the ranks once per step. The table: group_sums.h.
#pragma once

#include <vector>

#include "zero/group/group_sums.h"
#include "zero/group/sums_away.h"

namespace zinc::zero {

// A rank gets its shards of the sums, in their place among all elements.
class WholeSums : public GroupSums {
 public:
  using GroupSums::GroupSums;

  // Sums in the dtype that backward writes need no second buffer.
  bool collects() const final { return policy().written == policy().kept; }
  void add(const MicroBatchTurn& turn) final;
  comm::Work reduce(const MicroBatchTurn& turn) final;
  void finish() final;
  View on_device(const OwnedRange& slice) final;
  void discard() final;

 protected:
  // Issues the sum over the ranks.
  virtual comm::Work issue();
  View sums();
  void free_sums();
  View shard_of(const Segment& segment);

 private:
  Block& block() { return collects() ? written(0) : kept_; }

  Block kept_;  // [trained_numel] policy.kept; unused if a target collects
};

// Every rank gets the whole sums.
class ReplicatedSums final : public WholeSums {
 public:
  using WholeSums::WholeSums;

 private:
  comm::Work issue() override;
};

// The rank's shards leave the device as soon as they are reduced, but for the slices that stay
// there (Note [Split states]).
class LeavingWholeSums final : public WholeSums {
 public:
  // `all`: no slice of the group stays. `away` must outlive this.
  LeavingWholeSums(const ShardGroup& group, Reducer& reducer, SumsAway& away, bool all);
  void finished() override;
  bool has_arrived() override { return away_.has_arrived(group().index()); }
  void await(StreamRef stream) override { away_.await(group().index(), stream); }

 private:
  comm::Work issue() override;

  SumsAway& away_;
  const bool all_;
};

}  // namespace zinc::zero
