// zero/group_gradients.h: what all gradient stores share: which parameters of a group have
// written, and in which order groups are handed to the ranks.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "zero/gradient_store.h"
#include "zero/segment_collectives.h"

namespace zinc::zero {

class GroupGradients : public GradientStore {
 public:
  GroupGradients(const std::vector<ShardGroup>& groups, const StepSchedule& schedule,
                 comm::Communicator& communicator, Context& context, PhaseClock& clock,
                 const GradientStoreOptions& options);

  void begin_micro_steps(int64_t index, int64_t together, int64_t count) override;
  void enter(int64_t i) override { current_ = static_cast<size_t>(i); }
  autograd::GradientTarget target(ParameterIndex parameter) override;
  void gradient_done(ParameterIndex parameter) override;
  void complete_micro_steps() override;
  void end_micro_steps() override;
  GradientProgress progress() const override;
  void resume(const GradientProgress& progress) override;
  void discard() override;
  void discard_all_but_host() override;
  void discard_host(int group) override { states_[static_cast<size_t>(group)].host.reset(); }
  void on_complete(Complete complete) override { on_complete_ = std::move(complete); }
  void on_gradient(std::function<void()> moment) override { on_gradient_ = std::move(moment); }
  void on_sums(Sums sums) override { on_sums_ = std::move(sums); }
  bool has_arrived(int group) override;
  void await(int group, StreamRef stream) override;

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
  // The group's turn in the order of reductions; only where reduces_now().
  virtual bool reduces_now() const = 0;
  virtual void reduce(const ShardGroup& group, GroupState& state) = 0;
  // Gives back what the step has taken on the device.
  virtual void clear() = 0;

  const std::vector<ShardGroup>& groups() const { return groups_; }
  const std::vector<int>& order() const { return order_; }
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
  // end_reduction(), which reduce() leaves to its caller.
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
  void issue_in_order();
  void issue(const ShardGroup& group, GroupState& state);

  const std::vector<ShardGroup>& groups_;
  const std::vector<int> order_;
  comm::Communicator& communicator_;
  Context& context_;
  PhaseClock& clock_;
  const GradientStoreOptions options_;
  SegmentCollectives collectives_;
  Complete on_complete_;
  std::function<void()> on_gradient_;
  Sums on_sums_;
  std::vector<GroupState> states_;
  size_t next_in_order_ = 0;    // group whose reduction comes next
  size_t next_micro_step_ = 0;  // of those side by side
  size_t current_ = 0;          // of those side by side
  size_t together_ = 1;         // their number
  int64_t begin_ = 0;           // the first of them, of the step's
  int64_t count_ = 1;           // of the step
};

}  // namespace zinc::zero
