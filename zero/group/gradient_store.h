// zero/group/gradient_store.h: stores the gradients of all groups, adds them up, and keeps the sums
// until the step.
//
// The engine makes one of two stores: make_whole_sums() or make_sharded_sums(). The store decides
// how a group's gradients are added over micro-batches and ranks. The step program decides when a
// group is reduced. All calls come from the issuing thread. A buffer is allocated when backward
// first writes to it and freed after the step, so gradients and activations share memory.
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
#include "zero/layout/backward_turn.h"
#include "zero/layout/parameter_table.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/trace/phase_clock.h"

namespace zinc::zero {

// Which parameters have written gradients in the micro-step under way: by group, and in a group by
// position in ShardGroup::placements().
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
  // True: every rank gets the whole sums (stage 0). False: its shards of them (stages 1 to 3).
  bool replicate = true;
  int64_t bucket_numel = 500'000'000;  // elements per collective
  // Which sums are off the device. They are copied to host memory on the copy-out stream as soon as
  // they are complete. If no sums of a group stay on the device, the group's device memory is
  // freed. Unused with `replicate`.
  StateSplit split;
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
  // By group; empty: all are made in one backward pass.
  std::vector<BackwardTurn> turns{};
};

class GradientStore {
 public:
  // `groups`, `communicator`, `context` and `clock` must outlive this.
  GradientStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                Context& context, PhaseClock& clock, const GradientStoreOptions& options);
  virtual ~GradientStore() = default;
  GradientStore(const GradientStore&) = delete;
  GradientStore& operator=(const GradientStore&) = delete;

  // The micro-batches [index, index + together) of the step's `count` are about to run backward,
  // side by side. `together` > 1 only if every micro-batch is reduced. `turn`: the calls that
  // follow are for groups whose gradients are made then.
  virtual void begin_micro_steps(int64_t index, int64_t together, int64_t count,
                                 const BackwardTurn& turn = {});
  // The calls that follow are for the i-th of these micro-batches. begin_micro_steps() enters the
  // first.
  void enter(int64_t i) { current_ = static_cast<size_t>(i); }
  int64_t together() const { return static_cast<int64_t>(together_); }
  // Where backward writes the gradient of a parameter: [shape of the parameter] policy.written.
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
  virtual void finish() = 0;
  // After finish(): the step's sums over all micro-batches and ranks. `range`: part of one trained
  // segment of the group's arena; with sharded gradients, part of this rank's shard. Returns
  // [range.size()] policy.kept, valid for work on the compute stream until discard(). If `split`
  // puts the sums off the device, the view is in the tier pinned_host; `range` then lies in one
  // tier. Sums in swap space come as SwappedShards::read() gives them, perhaps fewer than asked
  // for. Throws IoError.
  virtual ConstView gradient(int group, Range range) = 0;
  // The same on the device, to be changed.
  virtual View on_device(int group, Range range) = 0;
  void discard();  // the step has ended or was skipped: frees the sums
  // For a step that still reads the sums in host memory or swap space: frees the rest.
  // discard_host() then frees the sums of one group in host memory.
  void discard_all_but_host();
  void discard_host(int group) { states_[static_cast<size_t>(group)].host.reset(); }

  // For sums that go to swap space: the store calls `sums` for each shard of the step's sums while
  // the shard is on the device. `sums` gets the shard as work on `stream` leaves it.
  using Sums = std::function<void(int group, Range range, const ConstView& sums, StreamRef stream)>;
  void on_sums(Sums sums) { on_sums_ = std::move(sums); }
  // True if the group's sums, whose reduction was issued, have reached their tier. Starts transfers
  // that can be started. Throws IoError.
  bool has_arrived(int group);
  // After this call gradient() gives the group's sums to work on `stream`. In host memory: `stream`
  // waits for them. In swap space: the calling thread waits. Throws IoError.
  void await(int group, StreamRef stream);

 protected:
  struct MicroStep {
    Block written;           // [trained_numel] policy.written; keeps_written(): of the whole step
    std::vector<bool> seen;  // by position: has a gradient
    int done = 0;
    bool complete = false;
  };
  struct GroupState {
    std::vector<MicroStep> micro_steps;  // those that run side by side
    Block kept;                          // policy.kept; the derived store defines the contents
    Block host;  // policy.kept, in host memory: the step's sums that are off the device
    std::vector<bool> in_step;  // by position: has a gradient in this step
    comm::Work work;
  };

  // True: one `written` collects all micro-batches of a step, and backward adds to it. Such
  // micro-batches do not run side by side.
  virtual bool keeps_written() const = 0;
  // Called when all gradients of the group in this micro-step are issued.
  virtual void collect(const ShardGroup&, GroupState&) {}
  // Issues the sum of the group's gradients in this micro-step over the ranks.
  virtual void reduce_group(const ShardGroup& group, GroupState& state) = 0;
  // Frees the device memory of the step.
  virtual void clear() = 0;

  const std::vector<ShardGroup>& groups() const { return groups_; }
  GroupState& state_of(const ShardGroup& group) {
    return states_[static_cast<size_t>(group.index())];
  }
  std::vector<GroupState>& states() { return states_; }
  // Of the micro-step that enter() has named.
  MicroStep& now(GroupState& state) const { return state.micro_steps[current_]; }
  const GradientPolicy& policy() const { return options_.policy; }
  const GradientStoreOptions& options() const { return options_; }
  comm::Communicator& communicator() { return communicator_; }
  Context& context() { return context_; }
  // Of the micro-step that enter() has named.
  bool is_first() const { return begin_ + static_cast<int64_t>(current_) == 0; }
  bool is_last() const { return begin_ + static_cast<int64_t>(current_) + 1 == count_; }
  // True if sums leave the device after this micro-step: to host memory after the step's last
  // micro-step, to swap space after the last of those side by side.
  bool leaves_now() const {
    return options_.swapped != nullptr ? current_ + 1 == together_ : is_last();
  }

  Block take(int64_t numel, DType dtype);
  View whole(const Block& block, DType dtype) const;
  View part(const Block& block, DType dtype, Range range) const;

  // Returns the reduce stream, ordered behind the work that was issued to the compute stream. The
  // phase clock counts the stream's time until end_reduction(). reduce() calls that after
  // reduce_group().
  StreamRef begin_reduction();
  // The bytes that a rank sends when the group's gradients are reduced to shards, or gathered, in
  // `dtype`.
  int64_t sent_bytes(const ShardGroup& group, DType dtype) const;
  void end_reduction();

  // True if any of this rank's sums of the group leave for host memory; true if any stay.
  bool leaves_device(const ShardGroup& group) const;
  bool keeps_on_device(const ShardGroup& group) const;
  using Shard = std::function<View(const Segment&)>;
  // Issues the copies of the sums that leave the device, behind the work on the reduce stream.
  // state.work becomes the copies. `shard` gives this rank's shard of a segment's sums on the
  // device. To host memory: to state.host, the part that leaves. To swap space: all of the shard.
  void send_off(const ShardGroup& group, GroupState& state, const Shard& shard);
  // Copies the group's sums of the earlier micro-steps from swap space to the device; `stream`
  // waits for the copies.
  void bring_back(const ShardGroup& group, const Shard& shard, StreamRef stream);
  // Waits until all sums that were sent are in swap space.
  void await_swap();
  // The piece of this rank's shard that holds `range`. Throws InternalError if no shard holds it,
  // or if it is in two tiers.
  StateSplit::Piece piece_of(const ShardGroup& group, Range range);
  ConstView host_gradient(const ShardGroup& group, const StateSplit::Piece& piece);
  SegmentCollectives& collectives() { return collectives_; }

 private:
  void send_to_host(const ShardGroup& group, GroupState& state, const Shard& shard);
  void send_to_swap(const ShardGroup& group, GroupState& state, const Shard& shard);
  // For a tile: its part of the view that `shard` gives.
  SwappedGradients::OnDevice tile_of(const ShardGroup& group, const Shard& shard);
  bool has_turn(const ShardGroup& group) const;
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
  size_t current_ = 0;   // which of the micro-steps side by side
  size_t together_ = 1;  // micro-steps side by side
  int64_t begin_ = 0;    // index in the step of the first of them
  int64_t count_ = 1;    // micro-steps of the step
  BackwardTurn turn_{};  // whose
};

// Every rank keeps whole sums over its micro-batches. Ranks reduce once per step, at the last
// micro-batch (stages 0 and 1 with the boundary schedule).
std::unique_ptr<GradientStore> make_whole_sums(const std::vector<ShardGroup>& groups,
                                               comm::Communicator& communicator, Context& context,
                                               PhaseClock& clock,
                                               const GradientStoreOptions& options);

// Every micro-batch is reduced at once. A rank keeps the sums of its own shards only (stages 2 and
// 3, and any stage with the micro_step schedule).
std::unique_ptr<GradientStore> make_sharded_sums(const std::vector<ShardGroup>& groups,
                                                 comm::Communicator& communicator, Context& context,
                                                 PhaseClock& clock,
                                                 const GradientStoreOptions& options);

}  // namespace zinc::zero
