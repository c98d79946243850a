// zero/group/gradient_store.h: where gradients are written, summed and kept until the step.
//
// What is common to all ways of keeping is here; a derived store decides how a group's gradients
// are summed over micro-batches and ranks, chosen once when the engine is made. When a group is
// reduced is the step program's. All calls come from the issuing thread. Buffers are taken when
// backward first needs them and given back after the step, so that gradients and activations share
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "zero/group/gradient_policy.h"
#include "zero/group/segment_collectives.h"
#include "zero/group/swapped_gradients.h"
#include "zero/layout/parameter_table.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/trace/phase_clock.h"

namespace zinc::zero {

// Of every group: which parameters have written in the micro-steps under way, by position.
struct GradientProgress {
  struct Group {
    std::vector<bool> in_step, seen;
    int done = 0;
    bool complete = false;
  };
  std::vector<Group> groups;
};

struct GradientStoreOptions {
  GradientPolicy policy;
  // Every rank gets the whole sum (stage 0) or only its shards (stages 1 to 3).
  bool replicate = true;
  int64_t bucket_numel = 500'000'000;  // elements per collective
  // What is off the device: its sums travel to host memory on the copy-out stream as soon as they
  // are complete. The memory that a group's sums take on the device is given back where none of
  // them stays. Nothing with `replicate`.
  StateSplit split;
  // Null: what is off the device is in host memory. Else all sums go there, and come back for the
  // next micro-batches: Note [Gradients on NVMe].
  SwappedGradients* swapped = nullptr;
  bool overlap = false;  // false: every reduction is waited for at once
  // Sums stay where they are for the next step.
  bool stays = false;
  double wire_divisor = 1.0;  // native sums: divides before the wire
  // False: a trained parameter without a gradient is an InvalidArgument, true: it counts as zero.
  bool allow_unused = true;
};

class GradientStore {
 public:
  // `groups`, `communicator`, `context` and `clock` must outlive this.
  GradientStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                Context& context, PhaseClock& clock, const GradientStoreOptions& options);
  virtual ~GradientStore() = default;
  GradientStore(const GradientStore&) = delete;
  GradientStore& operator=(const GradientStore&) = delete;

  // Micro-batches [index, index + together) of the `count` of a step are about to run backward,
  // side by side; more than one only where every micro-batch is reduced.
  virtual void begin_micro_steps(int64_t index, int64_t together, int64_t count);
  // What follows is of the i-th of them; of the first at the beginning.
  void enter(int64_t i) { current_ = static_cast<size_t>(i); }
  int64_t together() const { return static_cast<int64_t>(together_); }
  // Where the gradient of one parameter goes; accumulate is true for every use but the first.
  autograd::GradientTarget target(ParameterIndex parameter);
  void gradient_done(ParameterIndex parameter);
  // Parameters without a finished gradient count as zero.
  void complete_micro_steps();
  // All gradients that the i-th of them brings to the group are there.
  bool is_complete(int group, int64_t i) const;
  // The group's turn, for the i-th of them: its gradients are complete, or those that are missing
  // will not come and count as zero.
  void reduce(int group, int64_t i);
  // What one micro-step did between begin_micro_steps() and complete_micro_steps(), and its place:
  // for work that is recorded then and queued again without these calls. With `stays` alone.
  GradientProgress progress() const;
  void resume(const GradientProgress& progress);

  // After the last micro-batch: the compute stream waits for all reductions.
  virtual void finish() = 0;
  // Elements [range) of a group's arena, part of one trained segment, after finish(): the sum over
  // all micro-batches and ranks, of dtype policy.kept, in place for work on the compute stream
  // until discard(). The whole segment, or where gradients are sharded this rank's shard of it.
  // In the tier pinned_host where `split` says that it is off the device, all of it or nothing;
  // from swap space as SwappedShards::read() gives values. Throws IoError.
  virtual ConstView gradient(int group, Range range) = 0;
  // The same where it is on the device, to be changed.
  virtual View on_device(int group, Range range) = 0;
  void discard();  // the step is done or skipped
  // Where all is off the device: the step goes on with what is there alone, group by group.
  void discard_all_but_host();
  void discard_host(int group) { states_[static_cast<size_t>(group)].host.reset(); }

  // Only where sums go to swap space: calls `sums` with each shard of the step's sums, as
  // gradient() names it, while it is on the device, as work issued to `stream` leaves it.
  using Sums = std::function<void(int group, Range range, const ConstView& sums, StreamRef stream)>;
  void on_sums(Sums sums) { on_sums_ = std::move(sums); }
  // Whether the sums of a group that was reduced are there; makes progress. Throws IoError.
  bool has_arrived(int group);
  // `stream` waits for the sums of such a group, which gradient() then gives; the calling thread
  // does where they go to swap space. Throws IoError.
  void await(int group, StreamRef stream);

 protected:
  struct MicroStep {
    Block written;           // [trained_numel] policy.written; of the step where keeps_written()
    std::vector<bool> seen;  // by position: has a gradient
    int done = 0;
    bool complete = false;
  };
  struct GroupState {
    std::vector<MicroStep> micro_steps;  // that run side by side
    Block kept;                          // what the derived store keeps beside them
    Block host;  // policy.kept, in host memory: the step's sums of what is off the device
    std::vector<bool> in_step;  // by position: has a gradient in this step
    comm::Work work;
  };

  // `written` stays over the micro-batches of a step, and backward adds to it; they do not run side
  // by side.
  virtual bool keeps_written() const = 0;
  // All gradients of the group that this micro-step brings are issued.
  virtual void collect(const ShardGroup&, GroupState&) {}
  // The group's sums of this micro-step, over the ranks.
  virtual void reduce_group(const ShardGroup& group, GroupState& state) = 0;
  // Gives back what the step has taken on the device.
  virtual void clear() = 0;

  const std::vector<ShardGroup>& groups() const { return groups_; }
  GroupState& state_of(const ShardGroup& group) {
    return states_[static_cast<size_t>(group.index())];
  }
  std::vector<GroupState>& states() { return states_; }
  // Of the micro-step that is being worked on.
  MicroStep& now(GroupState& state) const { return state.micro_steps[current_]; }
  const GradientPolicy& policy() const { return options_.policy; }
  const GradientStoreOptions& options() const { return options_; }
  comm::Communicator& communicator() { return communicator_; }
  Context& context() { return context_; }
  // Of the micro-step that is being worked on.
  bool is_first() const { return begin_ + static_cast<int64_t>(current_) == 0; }
  bool is_last() const { return begin_ + static_cast<int64_t>(current_) + 1 == count_; }
  // Whether what leaves the device does so after this micro-step: to host memory after the step's
  // last, to swap space after the last of those side by side.
  bool leaves_now() const {
    return options_.swapped != nullptr ? current_ + 1 == together_ : is_last();
  }

  Block take(int64_t numel, DType dtype);
  View whole(const Block& block, DType dtype) const;
  View part(const Block& block, DType dtype, Range range) const;

  // The reduce stream, ordered behind what was issued to the compute stream. Its time counts until
  // end_reduction(), which reduce_group() leaves to its caller.
  StreamRef begin_reduction();
  // What a rank sends when the group's gradients are reduced to shards, or gathered, in `dtype`.
  int64_t sent_bytes(const ShardGroup& group, DType dtype) const;
  void end_reduction();

  // Whether some of this rank's sums of the group leave for host memory; whether some stay.
  bool leaves_device(const ShardGroup& group) const;
  bool keeps_on_device(const ShardGroup& group) const;
  using Shard = std::function<View(const Segment&)>;
  // Where it leaves_device(): copies that part of this rank's shards of the group's sums to
  // state.host, behind what was issued to the reduce stream; state.work becomes the copies. `shard`
  // gives one on the device. Where sums go to swap space, all of them leave for that instead.
  void send_off(const ShardGroup& group, GroupState& state, const Shard& shard);
  // The group's sums of the micro-steps before, from swap space to the device; `stream` waits.
  void bring_back(const ShardGroup& group, const Shard& shard, StreamRef stream);
  // All that left for swap space is there.
  void await_swap();
  // Part of this rank's shard of a segment, in one tier.
  StateSplit::Piece piece_of(const ShardGroup& group, Range range);
  ConstView host_gradient(const ShardGroup& group, const StateSplit::Piece& piece);
  SegmentCollectives& collectives() { return collectives_; }

 private:
  void send_to_host(const ShardGroup& group, GroupState& state, const Shard& shard);
  void send_to_swap(const ShardGroup& group, GroupState& state, const Shard& shard);
  // A tile's part of what `shard` gives.
  SwappedGradients::OnDevice tile_of(const ShardGroup& group, const Shard& shard);
  void complete(const ShardGroup& group);
  void zero_unused(const ShardGroup& group, GroupState& state);

  const std::vector<ShardGroup>& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  PhaseClock& clock_;
  const GradientStoreOptions options_;
  SegmentCollectives collectives_;
  Sums on_sums_;
  std::vector<GroupState> states_;
  size_t current_ = 0;   // of those side by side
  size_t together_ = 1;  // their number
  int64_t begin_ = 0;    // the first of them, of the step's
  int64_t count_ = 1;    // of the step
};

// Sums over micro-batches are whole on every rank; ranks reduce once per step, at its last
// micro-batch (stages 0 and 1).
std::unique_ptr<GradientStore> make_whole_sums(const std::vector<ShardGroup>& groups,
                                               comm::Communicator& communicator, Context& context,
                                               PhaseClock& clock,
                                               const GradientStoreOptions& options);

// Every micro-batch is reduced at once; a rank keeps the sums of its own shards only (stages 2 and
// 3, and any stage with the micro_step schedule).
std::unique_ptr<GradientStore> make_sharded_sums(const std::vector<ShardGroup>& groups,
                                                 comm::Communicator& communicator, Context& context,
                                                 PhaseClock& clock,
                                                 const GradientStoreOptions& options);

}  // namespace zinc::zero
