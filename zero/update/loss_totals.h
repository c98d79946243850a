// zero/update/loss_totals.h: adds up the losses of one step, and finds the number that its gradient
// is divided by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/world.h"
#include "parallel/vertical_passes.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"

namespace zinc::zero {

using parallel::BatchLoss;

// The loss of a whole step over all ranks.
struct StepLoss {
  double mean = 0.0;  // natural logarithm; NaN without targets
  int64_t num_targets = 0;
  // The first micro-batch, in the order of the sum, with a loss that is NaN or infinite, and the
  // rank that has it; -1: there is none.
  int64_t nonfinite_batch = -1;
  int nonfinite_rank = 0;
};
// Throws NumericsError, naming step, micro-batch and rank, if a loss is not finite and the
// configuration does not allow that. Call before the update of the step.
void require_finite(const StepLoss& loss, int64_t step, const PrecisionConfig& precision);

class LossTotals {
 public:
  // `divisor`: EngineConfig::loss_divisor(). `shares`: how many neighbouring ranks have the same
  // micro-batches. Each of them adds the loss of its part of a micro-batch's targets, and counts
  // all targets.
  explicit LossTotals(LossReduction reduction, double divisor = 1.0, int shares = 1)
      : reduction_(reduction), divisor_(divisor), shares_(shares) {}

  // The gradient that the backward pass of a micro-batch starts with: see Note [Loss scale].
  double seed(double loss_scale, int64_t num_targets) const;

  // Adds one micro-batch of this rank. sum: over its targets, or over this rank's share of them.
  void add(double sum, int64_t num_targets);

  // Adds the losses of all ranks, in the order of their global micro-batch index. So the sum does
  // not depend on which rank computed which loss. Every rank has added the same number of
  // micro-batches. `pipe`: the ranks of a pipeline, of which the last one's losses count; null:
  // there is none. Collective; waits.
  StepLoss reduce(comm::World& world, comm::World* pipe = nullptr) const;
  // The same from the values of all ranks: for each rank its `num_batches` losses, then its number
  // of targets.
  StepLoss combine(std::span<const double> by_rank, size_t num_batches) const;
  // The value that add() keeps of a loss: its sum, or its mean with LossReduction::micro_batch.
  double term(double sum, int64_t num_targets) const;

  // The number that the summed gradient is divided by to be the gradient of the mean loss; the
  // factor of seed() comes on top. 0 if no micro-batch has a target.
  double count(const StepLoss& loss, int world) const;

  // The value of count() once the last micro-batches of the step, `coming`, have been added. With
  // LossReduction::tokens: collective, and waits.
  double count_with(comm::World& world, std::span<const BatchLoss> coming) const;
  // False if a loss of this rank, among those added and those of `coming`, is not finite. Waits for
  // the losses of `coming`.
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
