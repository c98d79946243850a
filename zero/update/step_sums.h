// zero/update/step_sums.h: what the micro-batches of a step leave: their losses, and gradients that
// are summed over them and over the ranks.
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
  // All must outlive this; `verdict` null: the host reads each loss at once. `shares`: see
  // LossTotals. `pipe`, `tied`: null: there is no pipeline.
  StepSums(const EngineConfig& config, const Strategy& strategy, DeviceVerdict* verdict,
           comm::World& world, int shares, comm::World* pipe, const TiedGradients* tied)
      : totals_(config.gradient.loss_reduction, config.loss_divisor(), shares),
        strategy_(strategy),
        verdict_(verdict),
        world_(world),
        pipe_(pipe),
        tied_(tied) {}

  const LossTotals& totals() const { return totals_; }
  // One micro-batch of this rank: its summed loss, f32; undefined on a rank of a pipeline that does
  // not have it.
  void add(const Tensor& sum, int64_t num_targets);

  // The compute stream waits for the sums of all gradients. Once per step; collective.
  void end_gradients();
  // LossTotals::count() of the step. Collective; waits where ranks are several. Throws
  // InvalidArgument where no micro-batch has a target.
  double count();
  // For an update that begins before the step does, with the last micro-batches under way: true
  // where a loss of any rank is not finite, so that the step will throw. Collective; waits.
  bool must_wait(const PrecisionConfig& precision, std::span<const BatchLoss> coming) const;
  // Where the host reads losses, after count().
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
