// zero/update/whole_step.h: a step, from the losses and summed gradients of its micro-batches to
// its result: norm, overflow check, factor, loss scale, learning rate.
//
// The runner calls norm() and decide() where the step program has these ops. decide() begins the
// update of the weights, WeightUpdate, whose ops follow. The host decides over the step, or the
// device does: Note [Verdict on the device].
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "core/graphed_work.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "parallel/pipeline_cut.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"
#include "zero/layout/shard_group.h"
#include "zero/update/device_verdict.h"
#include "zero/update/gradient_norm.h"
#include "zero/update/loss_totals.h"
#include "zero/update/step_result.h"
#include "zero/update/stores.h"
#include "zero/update/training_state.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

// The device's part of a step, as CUDA graphs.
//
// Note [Recorded step]
// With "cuda_graph" the step is recorded, like the passes (Note [Recorded passes]), if the device
// decides over it (Note [Verdict on the device]) and the optimizer reads its scalars on the device.
// There are two parts, and between them the gather between ranks: the sums of squares; the verdict,
// the update, and the copy of the result to the host. An update of whole parameters has its own
// exchanges between ranks, which are recorded with it. Norm, factor, skip and loss scale never
// leave the device. Learning rate and bias corrections are written before each launch to where the
// kernels read them. The first step runs without graphs.
struct RecordedStep {
  GraphedWork norm, update;
};

class WholeStep {
 public:
  // The objects that a step works on. All must outlive the WholeStep.
  struct Parts {
    const EngineConfig& config;
    comm::World& world;  // the ranks that share the states
    int sequence = 1;    // neighbouring ranks that have the same micro-batches
    NormPeers peers{};   // ranks that have other parts of the model
    const parallel::PipelineCut* cut = nullptr;  // null: there is no pipeline
    const ShardGroups& groups;
    bool during_backward = false;  // the update may begin then: UpdateTime::during_backward
    Stores& stores;
    UpdateRules& rules;
    const optim::Optimizer& optimizer;
    bool host_decides = false;  // the update cannot follow a verdict on the device
    // Null: nothing is recorded, or the optimizer has not has_scalars().
    RecordedStep* recorded = nullptr;
  };
  WholeStep(const Parts& parts, const optim::Schedule& learning_rates);

  // The gradient that the backward pass of a micro-batch begins with: LossTotals::seed().
  double seed(int64_t num_targets) const;
  // Adds a micro-batch of this rank: its summed loss, f32 scalar; undefined on a rank of a pipeline
  // that does not have the loss.
  void add(const Tensor& sum, int64_t num_targets);
  // Call before the last backward passes of a step, if the update may begin during them: the client
  // cannot change learning rate and weights then. `coming`: this rank's losses of these passes.
  void expect(std::vector<BatchLoss> coming) {
    if (parts_.during_backward) coming_ = std::move(coming);
  }
  // True from a decide() during backward to the end of the step.
  bool is_updating() const { return updating_; }
  // The compute stream waits for the sums of all gradients. Returns the number that the sums are
  // divided by to be the gradient of the mean loss. Collective.
  double end_gradients();

  // The ops of the step program, and the end of the step. Collective.
  //
  // Sums and norm of all gradients. Throws NumericsError; no weight has changed then.
  void norm();
  // Begins the update. During backward, ahead of norm(): false if it has to wait for norm(),
  // because nothing was expected or a loss is not finite.
  bool decide();
  StepResult end();

  // The step's current activity, for messages: "optimizer step".
  const char* moment() const { return moment_; }
  int64_t steps() const { return steps_; }      // skipped ones included
  int64_t applied() const { return applied_; }  // updates
  // What an update on its own, outside of a step, works with.
  StepArguments between_steps() const {
    return {.optimizer = parts_.optimizer, .rules = parts_.rules, .factor = {}};
  }
  // Whether signs travelled in the last update.
  bool has_sent_signs() const {
    return parts_.stores.signs != nullptr &&
           parts_.optimizer.sign_reduction()->sends_signs(next_update() - 1);
  }
  // Call state() and restore() between steps.
  TrainingState state() const;
  // `reset`: the optimizer's states begin anew.
  void restore(const TrainingState& state, bool reset);
  optim::Schedule& learning_rates() { return learning_rates_; }
  const optim::Schedule& learning_rates() const { return learning_rates_; }

 private:
  // The compute stream waits for the sums of all gradients, once in a step.
  void end_sums();
  // Before signs travel: all ranks agree that their gradients are finite, or to skip the step.
  void begin_signs();
  bool are_signs() const { return parts_.stores.signs != nullptr && parts_.stores.signs->is_on(); }
  // Whether signs travel in the step that comes.
  void turn_signs();
  // LossTotals::count() of the step. Collective; waits if there are several ranks. Throws
  // InvalidArgument if no micro-batch has a target.
  double count();
  bool decide_early();
  // True if a loss of any rank, with those of `coming`, is not finite, and the configuration does
  // not allow that: the step will throw. Collective, and waits, unless such losses are allowed.
  bool must_wait(std::span<const BatchLoss> coming) const;
  // The sums of this rank's slices, in order, that can be read after the last reduction.
  std::vector<ConstView> kept_gradients() const;
  void measure();
  void queue_norm();
  void queue_verdict();
  void run_part(GraphedWork RecordedStep::*part, const std::function<void()>& work);
  StepResult by_norm();
  StepResult by_verdict();
  StepResult begin_result(const StepLoss& loss, double gradient_norm);
  // `culprit`: the gradient that is not finite.
  void skip(std::string culprit, StepResult& result);
  void set_update(double factor);
  void count_applied(StepResult& result);
  // The number of the update that comes, for the optimizer.
  int64_t next_update() const { return applied_ - reset_at_ + 1; }
  StepArguments arguments() const;
  double divisor_of(double count) const;
  double factor_of(double summed_norm, double divisor) const;

  const Parts parts_;
  optim::LossScaler scaler_;
  optim::Schedule learning_rates_;
  GradientNorm norm_;
  std::unique_ptr<GradientNorm> own_norm_;  // of the rank's own gradients; null: no signs travel
  // Of a step with signs: a gradient, of any rank, that is not finite.
  NormResult unsent_{};
  std::unique_ptr<DeviceVerdict> verdict_;  // null: the host decides
  LossTotals totals_;
  std::optional<StepLoss> loss_;  // of this step, once the host knows it
  bool sums_ended_ = false;
  int64_t steps_ = 0;
  int64_t applied_ = 0;
  int64_t reset_at_ = 0;  // TrainingState::reset_at
  int64_t consecutive_skips_ = 0;
  std::vector<BatchLoss> coming_;  // see expect()
  bool updating_ = false;
  // The figures of the step between norm() and end(), where the host decides.
  struct Measured {
    StepResult result;
    double summed_norm = 0.0, divisor = 1.0;
    bool overflow = false;
  };
  std::optional<Measured> measured_;
  const char* moment_ = "";
  Tensor factor_;  // [1] f32: the factor of the last update
};

}  // namespace zinc::zero
