#include "zero/update/step_sums.h"

#include "core/error.h"
#include "zero/gather_values.h"

namespace zinc::zero {

void StepSums::add(const Tensor& sum, int64_t num_targets) {
  if (verdict_ != nullptr) {
    verdict_->add(sum, num_targets);
  } else {
    totals_.add(sum.defined() ? sum.item() : 0.0, num_targets);
  }
}

void StepSums::end_gradients() {
  if (gradients_ended_) return;
  strategy_.weights->end_passes();
  strategy_.gradients->finish();
  if (tied_ != nullptr) tied_->add_up();
  gradients_ended_ = true;
}

double StepSums::count() {
  if (verdict_ == nullptr && !loss_) loss_ = totals_.reduce(world_, pipe_);
  const double count =
      verdict_ != nullptr ? verdict_->count() : totals_.count(*loss_, world_.size());
  require_targets(count);
  return count;
}

bool StepSums::must_wait(const PrecisionConfig& precision,
                         std::span<const BatchLoss> coming) const {
  return !precision.allow_nonfinite_loss && any_rank(world_, !totals_.is_finite_with(coming));
}

void StepSums::require_targets(double count) {
  require(count > 0.0, "engine.step: no micro-batch of this step has a target token");
}

void StepSums::clear() {
  totals_.clear();
  loss_.reset();
  gradients_ended_ = false;
}

}  // namespace zinc::zero
