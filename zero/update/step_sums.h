// zero/update/step_sums.h: collects what the micro-batches of a step leave: their losses, and their
// gradients summed over micro-batches and ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "comm/world.h"
#include "zero/strategy.h"
#include "zero/update/device_verdict.h"
#include "zero/update/loss_totals.h"
#include "zero/update/tied_gradients.h"

namespace zinc::zero {

class StepSums {
 public:
  // The references must outlive this. `verdict` null: the host reads each loss at once. `shares`:
  // see LossTotals. `pipe` and `tied` null: there is no pipeline.
  StepSums(const EngineConfig& config, const Strategy& strategy, DeviceVerdict* verdict,
           comm::World& world, int shares, comm::World* pipe, const TiedGradients* tied)
      : totals_(config.gradient.loss_reduction, config.loss_divisor(), shares),
        strategy_(strategy),
        verdict_(verdict),
        world_(world),
        pipe_(pipe),
        tied_(tied) {}

  const LossTotals& totals() const { return totals_; }
  // Adds one micro-batch of this rank: its summed loss, f32 scalar; undefined on a rank of a
  // pipeline that does not have the loss.
  void add(const Tensor& sum, int64_t num_targets);

  // The compute stream waits for the sums of all gradients. Works once per step; later calls do
  // nothing. Collective.
  void end_gradients();
  // LossTotals::count() of the step. Collective; waits if there are several ranks. Throws
  // InvalidArgument if no micro-batch has a target.
  double count();
  // For an update that begins before step(), while the last micro-batches are under way: true if a
  // loss of any rank is not finite and the configuration does not allow that. The step will throw
  // then. Collective, and waits, unless such losses are allowed.
  bool must_wait(const PrecisionConfig& precision, std::span<const BatchLoss> coming) const;
  // Valid after count(), if the host reads the losses.
  const StepLoss& loss() const { return *loss_; }
  static void require_targets(double count);

  void clear();

 private:
  LossTotals totals_;
  const Strategy& strategy_;
  DeviceVerdict* verdict_;
  comm::World& world_;
  comm::World* pipe_;
  const TiedGradients* tied_;
  std::optional<StepLoss> loss_;
  bool gradients_ended_ = false;
};

}  // namespace zinc::zero
