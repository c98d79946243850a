// zero/group/group_sums.h: the gradients of one group, from backward to the step. Each way of
// summing them over micro-batches and ranks is a class:
//
//   class             sums over micro-batches             over ranks      stages
//   ReplicatedSums    all elements, on the device         once a step     0
//   WholeSums         the same                            once a step     1
//   LeavingWholeSums  the same; shards leave the device   once a step     1, states away
//   GatheredSums      shards; at the end all elements     micro-batches   0
//   ShardSums         shards, on the device               micro-batches   1 to 3
//   LeavingShardSums  the same; the sums leave            micro-batches   1 to 3, states away
//   HostShardSums     shards, in host memory              micro-batches   1 to 3, states away
//   SwappedShardSums  shards, in swap space between them  micro-batches   1 to 3, gradients on NVMe
//
// The first three are in whole_sums.h, the others in shard_sums.h. zero/strategy.cpp chooses.
// zero/README.md, "A gradient policy", adds one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/allocator.h"
#include "core/stream.h"
#include "core/view.h"
#include "zero/group/reducer.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

// A micro-batch of a step.
struct MicroBatchTurn {
  int64_t index = 0;     // in the step
  int64_t count = 1;     // micro-batches of the step
  int64_t place = 0;     // among those that run backward side by side
  int64_t together = 1;  // how many those are

  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
  bool is_last_together() const { return place + 1 == together; }
};

// Called from the issuing thread only. The calls of a step: begin(); for each micro-batch target(),
// then add() and, where the step program says so, reduce(); after the last one finish(). Then the
// sums are read, until discard().
class GroupSums {
 public:
  // `group` and `reducer` must outlive this.
  GroupSums(const ShardGroup& group, Reducer& reducer) : group_(group), reducer_(reducer) {}
  virtual ~GroupSums() = default;
  GroupSums(const GroupSums&) = delete;
  GroupSums& operator=(const GroupSums&) = delete;

  // `together` micro-batches are about to run backward, side by side.
  void begin(int64_t together) { written_.resize(static_cast<size_t>(together)); }
  // What backward writes in the micro-batch at `place`: [trained_numel] policy.written. Taken at
  // the first call, with zeros in the padding.
  View target(int64_t place);
  // True: one target collects all micro-batches of a step, and backward adds to it. Such
  // micro-batches do not run side by side.
  virtual bool collects() const { return false; }
  // Backward has issued all gradients of the micro-batch, to the compute stream.
  virtual void add(const MicroBatchTurn& turn) = 0;
  // Issues the sum over the ranks on the reduce stream, between Reducer::begin() and end(). Returns
  // that work. Collective.
  virtual comm::Work reduce(const MicroBatchTurn& turn) = 0;
  // All micro-batches are reduced. Issues what is missing. Then the compute stream waits for
  // work().
  virtual void finish() {}
  // The compute stream has waited: frees what the step does not read.
  virtual void finished() {}
  // Behind it the sums are where they live.
  const comm::Work& work() const { return work_; }

  // The step's sums of a slice that this rank updates, or of a part of it: [slice.range.size()]
  // policy.kept, on the device.
  virtual View on_device(const OwnedRange& slice) = 0;
  // The next two are for a step that does not wait for finish(): True if the sums have reached
  // their tier. After await() they can be read by work on `stream`.
  virtual bool has_arrived() { return work_.query(); }
  virtual void await(StreamRef stream) { work_.wait_on(stream); }
  // Frees the memory on the device.
  virtual void discard();

 protected:
  const ShardGroup& group() const { return group_; }
  Reducer& reducer() const { return reducer_; }
  const GradientPolicy& policy() const { return reducer_.policy(); }
  void set_work(comm::Work work) { work_ = std::move(work); }
  Block& written(int64_t place) { return written_[static_cast<size_t>(place)]; }

  View whole(const Block& block, DType dtype) const;
  View part(const Block& block, DType dtype, Range range) const {
    return whole(block, dtype).narrow(0, range.begin, range.size());
  }

 private:
  const ShardGroup& group_;
  Reducer& reducer_;
  std::vector<Block> written_;  // by place
  comm::Work work_;
};

// Makes the sums of a group.
using MakeGroupSums =
    std::function<std::unique_ptr<GroupSums>(const ShardGroup& group, Reducer& reducer)>;

}  // namespace zinc::zero
