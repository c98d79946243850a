#include "zero/update/whole_step.h"

#include <cmath>
#include <functional>
#include <utility>

#include "core/error.h"
#include "kernels/step_rules.h"
#include "zero/group/gradient_policy.h"

namespace zinc::zero {

std::string_view name_of(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::accumulated:
      return "accumulated";
    case StepOutcome::applied:
      return "applied";
    case StepOutcome::skipped_overflow:
      return "skipped_overflow";
  }
  return "?";
}

namespace {

// Throws NumericsError once `allowed` steps in a row were skipped. `culprit`: the gradient that was
// not finite in the last one.
void require_progress(int64_t skipped, int64_t allowed, std::string_view culprit) {
  if (skipped < allowed) return;
  throw NumericsError(concat("the gradient was not finite for ", skipped,
                             " steps in a row, last in ", culprit,
                             "; lower the learning rate, or check data and weights for NaN"));
}

}  // namespace

WholeStep::WholeStep(const Parts& parts, const optim::Schedule& learning_rates)
    : parts_(parts),
      scaler_(parts.config.precision.loss_scale),
      learning_rates_(learning_rates),
      norm_(parts.groups, parts.strategy.owned, parts.world.communicator(), parts.world.context(),
            parts.peers),
      verdict_(parts.peers.tensor != nullptr || parts.sequence > 1 || parts.cut != nullptr
                   ? nullptr
                   : make_device_verdict(parts.config, parts.has_own_optimizer, norm_, scaler_,
                                         parts.world)),
      tied_(parts.cut == nullptr
                ? nullptr
                : std::make_unique<TiedGradients>(parts.groups, *parts.cut, *parts.peers.pipe,
                                                  parts.strategy)),
      sums_(parts.config, parts.strategy, verdict_.get(), parts.world, parts.sequence,
            parts.peers.pipe, tied_.get()) {
  parts.strategy.measures_with(norm_);
}

double WholeStep::seed(int64_t num_targets) const {
  return sums_.totals().seed(scaler_.scale(), num_targets);
}

double WholeStep::end_gradients() {
  sums_.end_gradients();
  return divisor_of(sums_.count());
}

StepResult WholeStep::run() {
  moment_ = "reduction of the gradients";
  StepResult result = verdict_ != nullptr ? by_verdict() : by_norm();
  sums_.clear();
  return result;
}

void WholeStep::finish_update() {
  if (parts_.strategy.late != nullptr) parts_.strategy.late->finish();
}

TrainingState WholeStep::state() const {
  return {.steps = steps_,
          .applied = applied_,
          .consecutive_skips = consecutive_skips_,
          .loss_scale = scaler_.state(),
          .is_loss_scale_dynamic = scaler_.dynamic(),
          .schedule = learning_rates_.state(),
          .optimizer = {},
          .kinds = {}};
}

void WholeStep::restore(const TrainingState& state) {
  require(state.steps >= state.applied && state.applied >= 0 && state.consecutive_skips >= 0,
          "engine.import_state: ", state.applied, " of ", state.steps,
          " steps were applied, which cannot be");
  if (state.is_loss_scale_dynamic && scaler_.dynamic()) scaler_.set_state(state.loss_scale);
  learning_rates_.set_state(state.schedule);
  steps_ = state.steps;
  applied_ = state.applied;
  consecutive_skips_ = state.consecutive_skips;
  if (verdict_ != nullptr) verdict_->restore(scaler_);
}

StepResult WholeStep::by_norm() {
  sums_.end_gradients();
  const double divisor = divisor_of(sums_.count());
  const NormResult norm = parts_.strategy.measure(norm_);
  const double summed_norm = std::sqrt(norm.sum_of_squares);
  StepResult result = begin_result(sums_.loss(), summed_norm / divisor);
  const bool overflow = parts_.config.precision.check_overflow && norm.nonfinite != nullptr;
  if (overflow) skip(norm, result);
  if (!overflow) require_finite(sums_.loss(), result.step, parts_.config.precision);
  update(overflow, summed_norm, divisor);
  if (!overflow) count_applied(result);
  scaler_.update(overflow, result.overflow);
  return result;
}

StepResult WholeStep::begin_result(const StepLoss& loss, double gradient_norm) {
  moment_ = "optimizer step";
  return {.step = ++steps_,
          .loss = loss.mean,
          .gradient_norm = gradient_norm,
          .learning_rate = learning_rates_.lr(),
          .loss_scale = scaler_.scale(),
          .num_targets = loss.num_targets};
}

// Queues the whole step, then waits once. See Note [Verdict on the device] and, with recorded
// passes, Note [Recorded step].
DeviceVerdict::Result WholeStep::queue_verdict() {
  using Part = RecordedPasses::StepPart;
  Strategy& strategy = parts_.strategy;
  const bool records = parts_.recorded != nullptr && parts_.optimizer.num_scalars() > 0;
  const auto run_part = [&](Part part, const std::function<void()>& work) {
    if (records) {
      parts_.recorded->run_step(part, work);
    } else {
      work();
    }
  };
  sums_.end_gradients();
  if (verdict_->bring() && records) parts_.recorded->forget_step();
  const std::vector<ConstView> gradients = strategy.kept_gradients();
  run_part(Part::norm, [&] { verdict_->measure(gradients); });
  verdict_->gather();
  if (records) parts_.rules.bring_scalars(parts_.optimizer, applied_ + 1);
  run_part(Part::update, [&] {
    verdict_->decide();
    StepArguments args = arguments();
    args.factor = verdict_->factor();
    args.skip = verdict_->skip();
    strategy.step->run(args);
    verdict_->send();
  });
  strategy.weights->publish();
  strategy.gradients->discard();
  return verdict_->read(sums_.totals());
}

StepResult WholeStep::by_verdict() {
  parts_.rules.follow(learning_rates_);
  const auto [verdict, loss] = queue_verdict();
  StepSums::require_targets(verdict.count);
  StepResult result =
      begin_result(loss, std::sqrt(verdict.sum_of_squares) / divisor_of(verdict.count));
  if (verdict.withheld != 0) require_finite(loss, result.step, parts_.config.precision);
  if (verdict.skip != 0) {
    skip(norm_.result(verdict.sum_of_squares, verdict.first_nonfinite), result);
  } else {
    count_applied(result);
  }
  scaler_.follow(verdict.scale, verdict.at_minimum != 0, result.overflow);
  return result;
}

void WholeStep::skip(const NormResult& norm, StepResult& result) {
  result.outcome = StepOutcome::skipped_overflow;
  result.overflow = norm_.culprit(norm);
  require_progress(++consecutive_skips_, parts_.config.precision.max_consecutive_skips,
                   result.overflow);
}

void WholeStep::begin_early(std::span<const BatchLoss> coming) {
  if (parts_.policy.update != UpdateTime::during_backward ||
      sums_.must_wait(parts_.config.precision, coming)) {
    return;
  }
  const double count = sums_.totals().count_with(parts_.world, coming);
  StepSums::require_targets(count);
  set_update(factor_of(0.0, divisor_of(count)));
  updating_ = true;
  parts_.strategy.step->begin(arguments());
}

double WholeStep::divisor_of(double count) const {
  return scaler_.scale() * count / gradient_divisor(parts_.config, parts_.world.size());
}

StepArguments WholeStep::arguments() const {
  return {.optimizer = parts_.optimizer,
          .rules = parts_.rules,
          .factor = factor_.defined() ? factor_.view() : View(),
          .step = applied_ + 1};
}

void WholeStep::set_update(double factor) {
  // The factor's memory is kept: every step then has the same peak.
  if (!factor_.defined()) factor_ = Tensor::empty({1}, DType::f32, Label::workspace);
  factor_.fill(factor);
  parts_.rules.follow(learning_rates_);
}

// A skipped update takes the same memory as an applied one. Both then have the peak of the plan.
void WholeStep::update(bool skipped, double summed_norm, double divisor) {
  if (!std::exchange(updating_, false)) {
    finish_update();  // the update before reads factor_ and the rules
    set_update(skipped ? 0.0 : factor_of(summed_norm, divisor));
  }
  if (parts_.strategy.late != nullptr) return parts_.strategy.late->begin(arguments(), skipped);
  if (!skipped) parts_.strategy.step->run(arguments());
  parts_.strategy.weights->publish();
  parts_.strategy.gradients->discard();
}

void WholeStep::count_applied(StepResult& result) {
  learning_rates_.advance();
  ++applied_;
  consecutive_skips_ = 0;
  result.outcome = StepOutcome::applied;
}

double WholeStep::factor_of(double summed_norm, double divisor) const {
  return kernels::update_factor(summed_norm, divisor, parts_.config.gradient.clipping);
}

}  // namespace zinc::zero
