// zero/group/gradient_store.h: stores the gradients of all groups, adds them up, and keeps the sums
// until the step.
//
// The store decides how a group's gradients are added over micro-batches and ranks. The step
// program decides when a group is reduced. All calls come from the issuing thread. A buffer is
// allocated when backward first writes to it and freed after the step, so gradients and activations
// share memory.
//
//   sums      over micro-batches                  over ranks                   stages
//   whole     on every rank, of all elements      once per step                0, 1
//   sharded   of this rank's shards: one running  in every micro-batch         2, 3, and all stages
//             sum, or the partial sums of a tree                               that reduce so often
//
// Sharded sums are made where they live: on the device, or for states off the device in host memory
// (Note [Sums in host memory]). Whole sums are made on the device; the reduced ones leave it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "comm/bucketed_collectives.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/phase_clock.h"
#include "zero/group/gradient_policy.h"
#include "zero/group/host_gradients.h"
#include "zero/group/swapped_gradients.h"
#include "zero/layout/backward_turn.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

// The gradients of a group that have been written in a micro-step.
struct MicroStepProgress {
  std::vector<bool> seen;  // by position in ShardGroup::placements(): has a gradient
  int done = 0;            // finished gradients
  bool complete = false;
};
// By group: progress in the current micro-step, and in the step.
struct GradientProgress {
  struct Group {
    MicroStepProgress micro_step;
    std::vector<bool> in_step;  // as MicroStepProgress::seen
  };
  ByGroup<Group> groups;
};

struct GradientStoreOptions {
  GradientPolicy policy;
  bool whole = false;  // sums are whole: the table above
  // True: every rank gets the whole sums (stage 0). False: its shards of them (stages 1 to 3).
  bool replicate = true;
  int64_t bucket_numel = 500'000'000;  // elements per collective
  // The slices that this rank updates. The sums of slices off the device are copied to host memory
  // on the copy-out stream as soon as they are complete. If no sums of a group stay on the device,
  // the group's device memory is freed. Unused with `replicate`.
  std::vector<OwnedRange> slices;
  // True: for groups whose slices are all off the device, sharded sums over micro-batches are made
  // in host memory. Unused with `swapped`.
  bool adds_in_host = false;
  // Null: sums off the device are in host memory. Otherwise all sums go to this store, and come
  // back for the next micro-batches: Note [Gradients on NVMe].
  SwappedGradients* swapped = nullptr;
  bool overlap = false;  // false: the compute stream waits for each reduction at once
  // True: buffers are kept from step to step, at the same addresses.
  bool stays = false;
  double wire_divisor = 1.0;  // native sums: gradients are divided by it before they travel
  // A trained parameter that gets no gradient counts as zero (true), or is an InvalidArgument
  // (false).
  bool allow_unused = true;
  // The backward pass of each group, by group; empty: one pass makes all gradients.
  ByGroup<BackwardTurn> turns{};
};

class GradientStore {
 public:
  // `groups`, `communicator`, `context` and `clock` must outlive this.
  GradientStore(const ShardGroups& groups, comm::Communicator& communicator, Context& context,
                PhaseClock& clock, const GradientStoreOptions& options);
  GradientStore(const GradientStore&) = delete;
  GradientStore& operator=(const GradientStore&) = delete;

  // The micro-batches [index, index + together) of the step's `count` are about to run backward,
  // side by side. `together` > 1 only if every micro-batch is reduced. `turn`: the backward pass;
  // the calls that follow are for the groups whose gradients it makes.
  void begin_micro_steps(int64_t index, int64_t together, int64_t count,
                         const BackwardTurn& turn = {});
  // The calls that follow are for the i-th of these micro-batches. begin_micro_steps() enters the
  // first.
  void enter(int64_t i) { current_ = static_cast<size_t>(i); }
  int64_t together() const { return static_cast<int64_t>(together_); }
  // The memory for the gradient of a parameter: [shape of the parameter] policy.written.
  // `accumulate` is false for the first write of a micro-step, or of a step where one buffer
  // collects all micro-batches, and true for later writes. Padding is zeroed on the compute stream.
  autograd::GradientTarget target(ParameterIndex parameter);
  void gradient_done(ParameterIndex parameter);
  // Ends the micro-steps under way. Parameters without a finished gradient count as zero.
  void complete_micro_steps();
  // True once all gradients of the group in the i-th micro-batch are issued.
  bool is_complete(int group, int64_t i) const;
  // Issues the reduction of the group's gradients in the i-th micro-batch, on the reduce stream. A
  // gradient that is missing now counts as zero. Collective.
  void reduce(int group, int64_t i);
  // The progress of one micro-step between begin_micro_steps() and complete_micro_steps(), and how
  // to set it again. For work that was recorded once, and is queued again without these calls (CUDA
  // graphs). With GradientStoreOptions::stays only.
  GradientProgress progress() const;
  void resume(const GradientProgress& progress);

  // Call after the last micro-batch. The compute stream waits for all reductions. Collective on
  // stage 0 with sharded sums.
  void finish();
  // After finish(): the step's sums over all micro-batches and ranks. `slice`: one that this rank
  // updates, or part of it. Returns [slice.range.size()] policy.kept in the slice's tier, valid for
  // work on the compute stream until discard(). Sums in swap space come as SwappedShards::read()
  // gives them, perhaps fewer than asked for. Throws IoError.
  ConstView gradient(const OwnedRange& slice);
  // The same on the device, to be changed.
  View on_device(const OwnedRange& slice);
  void discard();  // the step has ended or was skipped: frees the sums
  // For a step that still reads the sums in host memory or swap space: frees the rest.
  // discard_host() then frees the sums of one group in host memory.
  void discard_all_but_host();
  void discard_host(int group) {
    if (host_) host_->discard(group);
  }

  // For sums that go to swap space: the store calls `sums` for each slice of the step's sums while
  // the slice is on the device. `sums` may read the slice in work on `stream`.
  using Sums =
      std::function<void(const OwnedRange& slice, const ConstView& sums, StreamRef stream)>;
  void on_sums(Sums sums) { on_sums_ = std::move(sums); }
  // True if the group's sums, whose reduction was issued, have reached their tier. Starts transfers
  // that can be started. Throws IoError.
  bool has_arrived(int group);
  // After this call gradient() gives the group's sums to work on `stream`. In host memory: `stream`
  // waits for them. In swap space: the calling thread waits. Throws IoError.
  void await(int group, StreamRef stream);

 private:
  struct MicroStep : MicroStepProgress {
    Block written;  // [trained_numel] policy.written; keeps_written(): of the whole step
  };
  // The sum of a complete subtree of micro-steps: GradientPolicy::tree_over_micro_batches.
  struct Subtree {
    int64_t micro_steps = 1;
    Block sum;
  };
  struct GroupState {
    std::vector<MicroStep> micro_steps;  // the micro-steps that run side by side
    // Whole sums, in the layout of the arena; or this rank's shards of the trained segments, one
    // after the other.
    Block kept;
    // Dtype of kept: policy.kept, or added_dtype() for sums that go to host memory.
    DType dtype = DType::f32;
    std::vector<Subtree> tree;  // left to right
    std::vector<bool> in_step;  // GradientProgress::Group
    comm::Work work;            // behind it the group's sums are where they live
  };

  // True: one `written` collects all micro-batches of a step, and backward adds to it. Such
  // micro-batches do not run side by side.
  bool keeps_written() const {
    return options_.whole && options_.policy.written == options_.policy.kept;
  }
  // The micro-step that enter() has named.
  MicroStep& now(GroupState& state) const { return state.micro_steps[current_]; }
  bool is_first() const { return begin_ + static_cast<int64_t>(current_) == 0; }
  bool is_last() const { return begin_ + static_cast<int64_t>(current_) + 1 == count_; }
  // True if sums leave the device after this micro-step: to host memory after the step's last
  // micro-step, to swap space after the last micro-step that runs side by side with this one.
  bool leaves_now() const {
    return options_.swapped != nullptr ? current_ + 1 == together_ : is_last();
  }
  // True if all slices of the group are off the device, and its sums are made in host memory.
  bool may_add_in_host(const ShardGroup& group) const;
  // True if this micro-step's shard is added in host memory.
  bool adds_in_host(const ShardGroup& group) const {
    return together_ == 1 && count_ > 1 && may_add_in_host(group);
  }
  // The dtype of a shard on its way to host memory. It is no narrower than a sum over ranks on the
  // device.
  DType added_dtype() const;
  void make_host_gradients();
  bool has_turn(const ShardGroup& group) const;
  // Elements that this rank updates of the group, on the device or off it.
  int64_t numel(const ShardGroup& group, bool on_device) const;

  Block take(int64_t numel, DType dtype);
  View whole(const Block& block, DType dtype) const;
  View part(const Block& block, DType dtype, Range range) const;
  // Whole sums of a group.
  Block& sums(GroupState& state) { return keeps_written() ? now(state).written : state.kept; }
  // This rank's shard of a segment, and its sums on the device.
  Range own(const Segment& segment) const {
    return segment.shard(communicator_.rank(), communicator_.size());
  }
  View shard_of(GroupState& state, const Segment& segment);
  View shard_part(const ShardGroup& group, SegmentKind kind, Range range);
  // The bytes that a rank sends when the group's gradients are reduced to shards, or gathered, in
  // `dtype`.
  int64_t sent_bytes(const ShardGroup& group, DType dtype) const;

  void complete(const ShardGroup& group);
  void zero_unused(const ShardGroup& group, GroupState& state);
  // The reduce stream, ordered behind the work that was issued to the compute stream. The phase
  // clock counts the stream's time until end_reduction().
  StreamRef begin_reduction();
  void end_reduction();
  // Issue the sum of the group's gradients in this micro-step over the ranks. Return that work.
  comm::Work reduce_whole(const ShardGroup& group, GroupState& state);
  comm::Work reduce_to_shards(const ShardGroup& group, GroupState& state);
  // `kept` holds this micro-step's sum over the ranks. Two neighbouring subtrees of equal size are
  // merged. After the last micro-step the remaining subtrees are merged from the smallest up.
  void add_to_tree(GroupState& state, StreamRef stream);
  // Makes the compute stream wait for the oldest reduction, and frees that reduction's buffer.
  void retire_oldest();
  // Brings sharded sums to every rank.
  void gather(const ShardGroup& group);

  // Issues the copies of the sums that leave the device, behind the work on the reduce stream.
  // Host memory gets the slices that leave, swap space all of the shards. Returns the event behind
  // the copies.
  Event send_off(const ShardGroup& group, GroupState& state);
  Event send_to_swap(const ShardGroup& group);
  SwappedGradients::OnDevice tile_of(const ShardGroup& group);

  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  PhaseClock& clock_;
  const GradientStoreOptions options_;
  comm::BucketedCollectives collectives_;
  Sums on_sums_;
  std::optional<HostGradients> host_;  // slices in host memory; absent: none
  ByGroup<GroupState> states_;
  // Reductions under way, and the buffers that they read.
  std::deque<std::pair<comm::Work, Block>> in_flight_;
  size_t current_ = 0;   // index of the current micro-step among those side by side
  size_t together_ = 1;  // micro-steps side by side
  int64_t begin_ = 0;    // index in the step of the first of them
  int64_t count_ = 1;    // micro-steps of the step
  BackwardTurn turn_{};  // the current backward pass
};

}  // namespace zinc::zero
