// zero/group/reducer.h: the sums of gradients over the ranks: issues them on the reduce stream, and
// keeps the buffers that they read until they are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "comm/bucketed_collectives.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/phase_clock.h"
#include "core/stream.h"
#include "core/view.h"
#include "zero/group/gradient_policy.h"
#include "zero/group/sign_sums.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

struct ReducerOptions {
  GradientPolicy policy;
  int64_t bucket_numel = 500'000'000;  // elements per collective
  double wire_divisor = 1.0;  // native sums: gradients are divided by it before they travel
  // True: buffers are kept from step to step, at the same addresses.
  bool stays = false;
  // Makes the sums of steps in which signs travel; null: there are none. It must outlive the
  // reducer.
  SignSums* signs = nullptr;
};

// Called from the issuing thread only.
class Reducer {
 public:
  // `communicator`, `context` and `clock` must outlive this.
  Reducer(comm::Communicator& communicator, Context& context, PhaseClock& clock,
          const ReducerOptions& options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  Context& context() const { return context_; }
  const GradientPolicy& policy() const { return options_.policy; }
  bool stays() const { return options_.stays; }
  int ranks() const { return communicator_.size(); }
  // Sums over the ranks wait for the step: Note [Sums as signs].
  bool waits_for_step() const { return options_.signs != nullptr && options_.signs->is_on(); }
  // Elements that a rank has of the group's trained segments.
  int64_t shard_numel(const ShardGroup& group) const {
    return group.trained_numel() / communicator_.size();
  }
  // This rank's shard of a segment, in the group's arena.
  Range own(const Segment& segment) const {
    return segment.shard(communicator_.rank(), communicator_.size());
  }
  // Where that shard begins among the rank's shards of the trained segments, one after the other.
  int64_t place(const Segment& segment) const { return segment.offset / communicator_.size(); }
  // The bytes that a rank sends when the group's gradients are reduced to shards, or gathered, in
  // `dtype`; in a step with signs, there and back.
  int64_t sent_bytes(const ShardGroup& group, DType dtype) const;
  Block take(int64_t numel, DType dtype) const;

  // The reduce stream, ordered behind the work that was issued to the compute stream. The phase
  // clock counts the stream's time until end().
  StreamRef begin();
  void end();
  // Where a trained segment's shard of this rank is: [own(segment).size()].
  using ShardOf = std::function<View(const Segment& segment)>;
  // These are behind begin(). `values`, `out`: [trained_numel] of the group. In a step with signs,
  // the shards that come are in their place in `values`. Collective.
  comm::Work all_reduce(const ShardGroup& group, const View& values, StreamRef stream);
  comm::Work reduce_scatter(const ShardGroup& group, const View& values, const ShardOf& shard,
                            bool accumulate, StreamRef stream);
  comm::Work all_gather(const ShardGroup& group, const ShardOf& shard, const View& out,
                        StreamRef stream);

  // Keeps a buffer until the work that reads it is done. Then the compute stream has waited for it.
  void hold(comm::Work work, Block buffer);
  // Lets go of the oldest buffers until few enough are left for backward to go on.
  void let_go();
  void let_go_of_all();

 private:
  void let_go_of_oldest();

  comm::Communicator& communicator_;
  Context& context_;
  PhaseClock& clock_;
  const ReducerOptions options_;
  comm::BucketedCollectives collectives_;
  std::deque<std::pair<comm::Work, Block>> held_;
};

}  // namespace zinc::zero
