// zero/group/gradient_store.h: the gradients of all groups: which of them backward has written, and
// when a group's sums over micro-batches and ranks are made.
//
// How they are made is decided group by group (group_sums.h). The step program decides when a group
// is reduced. All calls come from the issuing thread. A buffer is allocated when backward first
// writes to it and freed after the step, so gradients and activations share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/phase_clock.h"
#include "zero/group/group_sums.h"
#include "zero/group/reducer.h"
#include "zero/group/sums_away.h"
#include "zero/group/tile_inputs.h"
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
  ReducerOptions reducer;
  // Where sums are that leave the device; null: none do. It must outlive the store.
  SumsAway* away = nullptr;
  bool overlap = false;  // false: the compute stream waits for each reduction at once
  // A trained parameter that gets no gradient counts as zero (true), or is an InvalidArgument
  // (false).
  bool allow_unused = true;
  // The backward pass of each group, by group; empty: one pass makes all gradients.
  ByGroup<BackwardTurn> turns{};
};

class GradientStore final : public TileInputs {
 public:
  // `groups`, `communicator`, `context` and `clock` must outlive this.
  GradientStore(const ShardGroups& groups, comm::Communicator& communicator, Context& context,
                PhaseClock& clock, const MakeGroupSums& make_sums,
                const GradientStoreOptions& options);
  GradientStore(const GradientStore&) = delete;
  GradientStore& operator=(const GradientStore&) = delete;

  // The micro-batches [index, index + together) of the step's `count` are about to run backward,
  // side by side. `together` > 1 only if every micro-batch is reduced. `turn`: the backward pass;
  // the calls that follow are for the groups whose gradients it makes.
  void begin_micro_steps(int64_t index, int64_t together, int64_t count,
                         const BackwardTurn& turn = {});
  // The calls that follow are for the i-th of these micro-batches. begin_micro_steps() enters the
  // first.
  void enter(int64_t i) { entered_ = i; }
  int64_t together() const { return together_; }
  // The memory for the gradient of a parameter: [shape of the parameter] GradientPolicy::written.
  // `accumulate` is false for the first write of a micro-step, or of a step where one buffer
  // collects all micro-batches, and true for later writes. Padding is zeroed on the compute stream.
  autograd::GradientTarget target(ParameterIndex parameter) { return target(parameter, entered_); }
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
  // graphs). With ReducerOptions::stays only.
  GradientProgress progress() const;
  void resume(const GradientProgress& progress);

  // Call after the last micro-batch. The compute stream waits for all reductions. Collective on
  // stage 0 with sharded sums.
  void finish();
  // After finish(): the step's sums over all micro-batches and ranks. `slice`: one that this rank
  // updates, or part of it. Returns [slice.range.size()] GradientPolicy::kept in the slice's tier,
  // valid for work on the compute stream until discard(). Sums off the device come as
  // SumsAway::read() gives them. Throws IoError.
  ConstView gradient(const OwnedRange& slice) override;
  // The same on the device, to be changed.
  View on_device(const OwnedRange& slice) { return of(slice.group).sums->on_device(slice); }
  void discard();  // the step has ended or was skipped: frees the sums
  // For a step that still reads the sums off the device: frees the rest.
  // discard_away() then frees those of one group.
  void discard_on_device();
  void discard_away(int group) {
    if (options_.away != nullptr) options_.away->discard(group);
  }

  // Of the group's sums, whose reduction was issued.
  bool has_arrived(int group) override { return of(group).sums->has_arrived(); }
  void await(int group, StreamRef stream) override { of(group).sums->await(stream); }

 private:
  struct GroupState {
    std::unique_ptr<GroupSums> sums;
    std::vector<MicroStepProgress> micro_steps;  // the micro-steps that run side by side
    std::vector<bool> in_step;                   // GradientProgress::Group
  };

  GroupState& of(int group) { return states_[group]; }
  bool has_turn(const ShardGroup& group) const;
  MicroBatchTurn turn_of(int64_t place) const {
    return {.index = begin_ + place, .count = count_, .place = place, .together = together_};
  }
  autograd::GradientTarget target(ParameterIndex parameter, int64_t place);
  // Ends the group's micro-step at this place among those side by side.
  void complete(const ShardGroup& group, int64_t place);
  void zero_unused(const ShardGroup& group, int64_t place);

  const ShardGroups& groups_;
  Context& context_;
  const GradientStoreOptions options_;
  Reducer reducer_;
  ByGroup<GroupState> states_;
  int64_t entered_ = 0;   // the current micro-step among those side by side
  int64_t together_ = 1;  // micro-steps side by side
  int64_t begin_ = 0;     // index in the step of the first of them
  int64_t count_ = 1;     // micro-steps of the step
  BackwardTurn turn_{};   // the current backward pass
};

}  // namespace zinc::zero
