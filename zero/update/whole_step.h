// zero/update/whole_step.h: a step, from the losses and summed gradients of its micro-batches to
// updated weights: norm, overflow check, factor, update, loss scale, learning rate.
//
// The host decides over the step, or the device does: Note [Verdict on the device].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/world.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"
#include "zero/layout/shard_group.h"
#include "zero/program/policy.h"
#include "zero/run/recorded_passes.h"
#include "zero/strategy.h"
#include "zero/training_state.h"
#include "zero/update/device_verdict.h"
#include "zero/update/gradient_norm.h"
#include "zero/update/loss_totals.h"
#include "zero/update/step_result.h"
#include "zero/update/step_sums.h"
#include "zero/update/tied_gradients.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

class WholeStep {
 public:
  // The objects that a step works on. All must outlive the WholeStep.
  struct Parts {
    const EngineConfig& config;
    comm::World& world;                // the ranks that share the states
    int sequence = 1;                  // neighbouring ranks that have the same micro-batches
    NormPeers peers{};                 // ranks that have other parts of the model
    const PipelineCut* cut = nullptr;  // null: there is no pipeline
    const std::vector<ShardGroup>& groups;
    const StepPolicy& policy;
    Strategy& strategy;
    UpdateRules& rules;
    const optim::Optimizer& optimizer;
    bool has_own_optimizer = false;      // the optimizer is a client's own
    RecordedPasses* recorded = nullptr;  // null: nothing is recorded
  };
  WholeStep(const Parts& parts, const optim::Schedule& learning_rates);

  // The gradient that the backward pass of a micro-batch begins with: LossTotals::seed().
  double seed(int64_t num_targets) const;
  // Adds a micro-batch of this rank: its summed loss, f32 scalar.
  void add(const Tensor& sum, int64_t num_targets) { sums_.add(sum, num_targets); }
  // Call before the last backward passes of a step. `coming`: this rank's losses of those passes.
  // If it may, the update begins during them: see Note [Updates during backward]. Collective.
  void begin_early(std::span<const BatchLoss> coming);
  bool is_updating() const { return updating_; }
  // The compute stream waits for the sums of all gradients. Returns the number that the sums are
  // divided by to be the gradient of the mean loss. At most once per step, before run().
  // Collective.
  double end_gradients();
  // Runs the step. Collective. Throws NumericsError; no weight has changed then.
  StepResult run();
  // Ends an update that runs beside the next forward pass, and waits for it. Collective.
  void finish_update();

  // What run() is doing now, for messages: "optimizer step".
  const char* moment() const { return moment_; }
  int64_t steps() const { return steps_; }      // skipped ones included
  int64_t applied() const { return applied_; }  // updates
  // Call state() and restore() between steps.
  TrainingState state() const;
  void restore(const TrainingState& state);
  optim::Schedule& learning_rates() { return learning_rates_; }
  const optim::Schedule& learning_rates() const { return learning_rates_; }

 private:
  StepResult by_norm();
  StepResult by_verdict();
  DeviceVerdict::Result queue_verdict();
  StepResult begin_result(const StepLoss& loss, double gradient_norm);
  void skip(const NormResult& norm, StepResult& result);
  void update(bool skipped, double summed_norm, double divisor);
  void set_update(double factor);
  void count_applied(StepResult& result);
  StepArguments arguments() const;
  double divisor_of(double count) const;
  double factor_of(double summed_norm, double divisor) const;

  const Parts parts_;
  optim::LossScaler scaler_;
  optim::Schedule learning_rates_;
  GradientNorm norm_;
  std::unique_ptr<DeviceVerdict> verdict_;  // null: the host decides
  std::unique_ptr<TiedGradients> tied_;     // null: there is no pipeline
  StepSums sums_;
  int64_t steps_ = 0;
  int64_t applied_ = 0;
  int64_t consecutive_skips_ = 0;
  bool updating_ = false;  // begin_early() has begun the update of this step
  const char* moment_ = "";
  Tensor factor_;  // [1] f32: the factor of the last update
};

}  // namespace zinc::zero
