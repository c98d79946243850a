// zero/gradient_store.h: where gradients are written, summed and kept until the step.
//
// One implementation per way of keeping, chosen once when the engine is made; nothing else asks for
// the stage. All calls come from the issuing thread. Buffers are taken when backward first needs
// them and given back after the step, so that gradients and activations share memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "zero/gradient_policy.h"
#include "zero/phase_clock.h"
#include "zero/shard_group.h"
#include "zero/state_split.h"
#include "zero/step_schedule.h"
#include "zero/swapped_gradients.h"

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

class GradientStore {
 public:
  virtual ~GradientStore() = default;

  // Micro-batches [index, index + together) of the `count` of a step are about to run backward,
  // side by side; more than one only where every micro-batch is reduced.
  virtual void begin_micro_steps(int64_t index, int64_t together, int64_t count) = 0;
  // What follows is of the i-th of them; of the first at the beginning.
  virtual void enter(int64_t i) = 0;
  // Where the gradient of one parameter goes; accumulate is true for every use but the first.
  virtual autograd::GradientTarget target(ParameterIndex parameter) = 0;
  virtual void gradient_done(ParameterIndex parameter) = 0;
  // Parameters without a finished gradient count as zero.
  virtual void complete_micro_steps() = 0;
  // Completes what is not complete yet, and issues the reductions that were not issued before.
  virtual void end_micro_steps() = 0;
  // What one micro-step did between begin_micro_steps() and complete_micro_steps(), and its place:
  // for work that is recorded then and queued again without these calls. With `stays` alone.
  virtual GradientProgress progress() const = 0;
  virtual void resume(const GradientProgress& progress) = 0;

  // After the last micro-batch: the compute stream waits for all reductions.
  virtual void finish() = 0;
  // Elements [range) of a group's arena, part of one trained segment, after finish(): the sum over
  // all micro-batches and ranks, of dtype policy.kept, in place for work on the compute stream
  // until discard(). The whole segment, or where gradients are sharded this rank's shard of it.
  // In the tier pinned_host where `split` says that it is off the device, all of it or nothing;
  // from swap space as SwappedShards::read() gives values. Throws IoError.
  virtual ConstView gradient(int group, Range range) = 0;
  virtual void discard() = 0;  // the step is done or skipped
  // Where all is off the device: the step goes on with what is there alone, group by group.
  virtual void discard_all_but_host() = 0;
  virtual void discard_host(int group) = 0;

  // Calls `complete` for each trained group when the last reduction of its sums was issued.
  using Complete = std::function<void(int group)>;
  virtual void on_complete(Complete complete) = 0;
  // Calls `moment` after every gradient_done().
  virtual void on_gradient(std::function<void()> moment) = 0;
  // Only where sums go to swap space: calls `sums` with each shard of the step's sums, as
  // gradient() names it, while it is on the device, as work issued to `stream` leaves it.
  using Sums = std::function<void(int group, Range range, const ConstView& sums, StreamRef stream)>;
  virtual void on_sums(Sums sums) = 0;
  // Whether the sums of a group that is complete are there; makes progress. Throws IoError.
  virtual bool has_arrived(int group) = 0;
  // `stream` waits for the sums of such a group, which gradient() then gives; the calling thread
  // does where they go to swap space. Throws IoError.
  virtual void await(int group, StreamRef stream) = 0;
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
  // Reductions are issued when backward has ended. Where ranks also gather in backward, and a group
  // may be complete early on one and late on another, nothing else keeps their collectives in one
  // order.
  bool after_backward = false;
  // Sums stay where they are for the next step.
  bool stays = false;
  double wire_divisor = 1.0;  // native sums: divides before the wire
  // False: a trained parameter without a gradient is an InvalidArgument, true: it counts as zero.
  bool allow_unused = true;
};

// Sums over micro-batches are whole on every rank; ranks reduce once per step, at its last
// micro-batch (stages 0 and 1).
std::unique_ptr<GradientStore> make_whole_sums(const std::vector<ShardGroup>& groups,
                                               const StepSchedule& schedule,
                                               comm::Communicator& communicator, Context& context,
                                               PhaseClock& clock,
                                               const GradientStoreOptions& options);

// Every micro-batch is reduced at once; a rank keeps the sums of its own shards only (stages 2 and
// 3, and any stage with the micro_step schedule).
std::unique_ptr<GradientStore> make_sharded_sums(const std::vector<ShardGroup>& groups,
                                                 const StepSchedule& schedule,
                                                 comm::Communicator& communicator, Context& context,
                                                 PhaseClock& clock,
                                                 const GradientStoreOptions& options);

}  // namespace zinc::zero
