// zero/update/loss_totals.h: the losses of one step, and what its gradient is divided by.
//
// See Note [Losses are summed] in zero/engine.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/world.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"

namespace zinc::zero {

// Of one micro-batch.
struct BatchLoss {
  Tensor sum;  // f32 scalar, over its targets
  int64_t num_targets = 0;
};

// Of a whole step over all ranks.
struct StepLoss {
  double mean = 0.0;  // natural logarithm; NaN without targets
  int64_t num_targets = 0;
  // The first micro-batch, in the order of the sum, whose loss is NaN or infinite; -1: none.
  int64_t nonfinite_batch = -1;
  int nonfinite_rank = 0;
};
// Throws NumericsError by name where a loss is not finite and the configuration does not allow it.
// For a step whose update has not been made.
void require_finite(const StepLoss& loss, int64_t step, const PrecisionConfig& precision);

class LossTotals {
 public:
  // `divisor`: EngineConfig::loss_divisor(). `shares`: neighbouring ranks that have the same
  // micro-batches: each adds the loss of a part of a micro-batch's targets, and counts all of them.
  explicit LossTotals(LossReduction reduction, double divisor = 1.0, int shares = 1)
      : reduction_(reduction), divisor_(divisor), shares_(shares) {}

  // The gradient with which the backward pass of a micro-batch starts: see Note [Loss scale].
  double seed(double loss_scale, int64_t num_targets) const;

  // One micro-batch of this rank. sum: over its targets, or this rank's share of them.
  void add(double sum, int64_t num_targets);

  // Losses are added in the order of their global micro-batch index, so that the sum does not
  // depend on who computed which. Collective; every rank has added as many. `pipe`: ranks of a
  // pipeline, of which the last one's losses count; null: there is none.
  StepLoss reduce(comm::World& world, comm::World* pipe = nullptr) const;
  // The same of what each rank would have added: by rank its losses, then its targets.
  StepLoss combine(std::span<const double> by_rank, size_t num_batches) const;
  // A loss as add() keeps it.
  double term(double sum, int64_t num_targets) const;

  // What the summed gradient of the step is divided by to be that of the mean loss, but for what
  // seed() multiplies it by. 0 where no micro-batch has a target.
  double count(const StepLoss& loss, int world) const;

  // What count() will give once these micro-batches of this rank have been added: the last of the
  // step. Collective where ranks may differ in it.
  double count_with(comm::World& world, std::span<const BatchLoss> coming) const;
  // False where a loss of this rank, these among them, is not finite. Waits for them.
  bool is_finite_with(std::span<const BatchLoss> coming) const;

  void clear();

 private:
  bool by_token() const { return reduction_ == LossReduction::tokens; }

  LossReduction reduction_;
  double divisor_;
  int shares_;
  std::vector<double> losses_;  // tokens: sums over targets; micro_batch: means
  int64_t num_targets_ = 0;
};

}  // namespace zinc::zero
