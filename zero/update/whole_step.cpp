#include "zero/update/whole_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "kernels/step_rules.h"
#include "zero/group/gradient_policy.h"
#include "zero/layout/planes.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

std::string_view name_of(StepOutcome outcome) {
  static constexpr std::array<std::string_view, 3> kNames{"accumulated", "applied",
                                                          "skipped_overflow"};
  return kNames[static_cast<size_t>(outcome)];
}

namespace {

// Throws NumericsError once `allowed` steps in a row were skipped. `culprit`: the gradient that was
// not finite in the last one.
void require_progress(int64_t skipped, int64_t allowed, std::string_view culprit) {
  if (skipped < allowed) return;
  throw NumericsError(str("the gradient was not finite for ", skipped, " steps in a row, last in ",
                          culprit, "; lower the learning rate, or check data and weights for NaN"));
}

// The last bits of a sum of squares in f64 depend on this rank's slices, which decide the order of
// the sum. Rounded to 24 bits, the norm depends on them only if it lies within 1e-15 of the middle
// between two f32 values.
double to_24_bits(double norm) {
  int exponent = 0;
  const double mantissa = std::frexp(norm, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 24)), exponent - 24);
}

// Everything that is trained, as if one rank owned it on the device.
std::vector<OwnedRange> all_slices(const ShardGroups& groups) {
  return StateSplit(groups, 1, Tier::device, 1.0).slices(groups, 0);
}

// The first parameter, in order of declaration, that is not finite on any rank, and the lowest of
// these ranks. `own`: what this rank has found. Collective.
NormResult first_nonfinite(const NormResult& own, const ShardGroups& groups, comm::World& world) {
  std::vector<const autograd::Parameter*> parameters;
  for (const ShardGroup& group : groups) {
    for (const Placement& placement : group.placements()) parameters.push_back(placement.parameter);
  }
  const auto place = std::ranges::find(parameters, own.nonfinite) - parameters.begin();
  const std::array mine{static_cast<double>(place)};
  const std::vector<double> places = comm::gather_values(world, mine);
  const auto first = std::ranges::min_element(places);
  NormResult found{.sum_of_squares = std::numeric_limits<double>::quiet_NaN()};
  if (*first >= static_cast<double>(parameters.size())) return found;
  found.nonfinite = parameters[static_cast<size_t>(*first)];
  found.nonfinite_rank = static_cast<int>(first - places.begin());
  return found;
}

void require_targets(double count) {
  require(count > 0.0, "engine.step: no micro-batch of this step has a target token");
}

}  // namespace

WholeStep::WholeStep(const Parts& parts, const optim::Schedule& learning_rates)
    : parts_(parts),
      scaler_(parts.config.precision.loss_scale),
      learning_rates_(learning_rates),
      norm_(parts.groups, parts.stores.owned, parts.world.communicator(), parts.world.context(),
            parts.peers),
      verdict_(
          parts.peers.tensor != nullptr || parts.sequence > 1 || parts.cut != nullptr ||
                  parts.config.determinism == Determinism::mesh
              ? nullptr
              : make_device_verdict(parts.config, parts.host_decides, norm_, scaler_, parts.world)),
      totals_(parts.config.gradient.loss_reduction, parts.config.loss_divisor(), parts.sequence) {
  if (parts_.stores.signs != nullptr) {
    own_norm_ = std::make_unique<GradientNorm>(
        parts.groups, std::vector<std::vector<OwnedRange>>{all_slices(parts.groups)},
        parts.world.communicator(), parts.world.context());
    turn_signs();
  }
  // Sums that go to swap space are measured as they leave.
  if (parts.stores.swapped_gradients == nullptr) return;
  norm_.expect_pieces();
  parts.stores.swapped_gradients->on_sums(
      [this](const OwnedRange& slice, const ConstView& sums, StreamRef stream) {
        norm_.take(slice, sums, stream);
      });
}

double WholeStep::seed(int64_t num_targets) const {
  return totals_.seed(scaler_.scale(), num_targets);
}

void WholeStep::add(const Tensor& sum, int64_t num_targets) {
  if (verdict_ != nullptr) {
    verdict_->add(sum, num_targets);
  } else {
    totals_.add(sum.defined() ? sum.item() : 0.0, num_targets);
  }
}

void WholeStep::end_sums() {
  if (std::exchange(sums_ended_, true)) return;
  parts_.stores.gathered->end_passes();
  if (are_signs()) begin_signs();
  parts_.stores.gradients->finish();
  if (parts_.cut == nullptr) return;
  for (const UpdatedRange& slice : parts_.stores.weights->slices()) {
    const Placement& placement = parts_.groups[slice.group].placements().front();
    const std::vector<int>& holders = parts_.cut->holders(*placement.parameter);
    if (holders.size() == 1) continue;
    parallel::add_tied_gradient(holders, *parts_.peers.pipe,
                                parts_.stores.gradients->on_device(slice));
  }
}

void WholeStep::turn_signs() {
  if (parts_.stores.signs == nullptr) return;
  parts_.stores.signs->turn(parts_.optimizer.sign_reduction()->sends_signs(next_update()));
}

void WholeStep::begin_signs() {
  Stores& stores = parts_.stores;
  const double scale = scaler_.scale() * count() / parts_.config.loss_divisor();
  std::vector<ConstView> gradients;
  for (const OwnedRange& slice : all_slices(parts_.groups)) {
    gradients.push_back(stores.gradients->on_device(slice));
  }
  unsent_ = first_nonfinite(own_norm_->measure(gradients), parts_.groups, parts_.world);
  if (unsent_.nonfinite != nullptr) return stores.signs->skip();
  require_finite(*loss_, steps_ + 1, parts_.config.precision);
  stores.update->finish();  // the update before reads the rules
  parts_.rules.follow(learning_rates_, parts_.optimizer, next_update());
  const optim::SignReduction& rule = *parts_.optimizer.sign_reduction();
  stores.signs->begin(
      1.0 / scale,
      [this, &rule](int group, Range range) {
        std::vector<SignSums::Part> parts;
        for (const UpdateRules::RuledRange& ruled : parts_.rules.ranges(group, range)) {
          parts.push_back({.range = ruled.range, .terms = rule.terms(ruled.hyper)});
        }
        return parts;
      },
      !rule.sends_signs(next_update() - 1),
      [this, &rule](const ShardGroup& group, const View& out) {
        for (size_t i = 0; i < group.placements().size(); ++i) {
          const Placement& placement = group.placements()[i];
          if (!is_trained(placement.segment) || placement.range().empty()) continue;
          parts_.stores.values->read_state(
              {group.index(), static_cast<int>(i)}, kFirstStatePlane + rule.last(),
              out.narrow(0, placement.offset, placement.parameter->numel()));
        }
      });
}

double WholeStep::count() {
  if (verdict_ == nullptr && !loss_) loss_ = totals_.reduce(parts_.world, parts_.peers.pipe);
  const double count =
      verdict_ != nullptr ? verdict_->count() : totals_.count(*loss_, parts_.world.size());
  require_targets(count);
  return count;
}

double WholeStep::end_gradients() {
  require(!are_signs(),
          "engine.gradient: in this step signs travel between the ranks, and no sum of their "
          "gradients is made; read it in a step before freeze_step");
  end_sums();
  return divisor_of(count());
}

bool WholeStep::must_wait(std::span<const BatchLoss> coming) const {
  return !parts_.config.precision.allow_nonfinite_loss &&
         comm::any_rank(parts_.world, !totals_.is_finite_with(coming));
}

std::vector<ConstView> WholeStep::kept_gradients() const {
  std::vector<ConstView> sums;
  for (const OwnedRange& slice : parts_.stores.weights->slices()) {
    sums.push_back(parts_.stores.gradients->gradient(slice));
  }
  return sums;
}

void WholeStep::norm() {
  moment_ = "reduction of the gradients";
  end_sums();
  if (verdict_ != nullptr) {
    queue_norm();
  } else {
    measure();
  }
}

bool WholeStep::decide() {
  if (verdict_ != nullptr) {
    queue_verdict();
    return true;
  }
  if (!measured_) return decide_early();
  Stores& stores = parts_.stores;
  stores.update->finish();  // the update before reads factor_ and the rules
  const bool skipped = measured_->overflow;
  const double factor = skipped ? 0.0 : factor_of(measured_->summed_norm, measured_->divisor);
  if (are_signs()) stores.signs->end(static_cast<float>(factor));
  // A skipped update takes the same memory as an applied one. Both then have the peak of the plan.
  set_update(factor);
  using Kind = WeightUpdate::Kind;
  stores.update->begin(arguments(), skipped ? Kind::skipped : Kind::in_step);
  return true;
}

StepResult WholeStep::end() {
  parts_.stores.update->end_step();
  StepResult result = verdict_ != nullptr ? by_verdict() : by_norm();
  totals_.clear();
  loss_.reset();
  sums_ended_ = false;
  coming_.clear();
  updating_ = false;
  turn_signs();
  return result;
}

TrainingState WholeStep::state() const {
  return {.steps = steps_,
          .applied = applied_,
          .reset_at = reset_at_,
          .consecutive_skips = consecutive_skips_,
          .loss_scale = scaler_.state(),
          .is_loss_scale_dynamic = scaler_.dynamic(),
          .schedule = learning_rates_.state(),
          .apart = false,
          .carried = parts_.rules.carried(parts_.optimizer),
          .optimizer = {},
          .kinds = {}};
}

void WholeStep::restore(const TrainingState& state, bool reset) {
  require(state.steps >= state.applied && state.applied >= state.reset_at && state.reset_at >= 0 &&
              state.consecutive_skips >= 0,
          "engine.import_state: ", state.applied, " of ", state.steps,
          " steps were applied, which cannot be");
  parts_.rules.set_carried(parts_.optimizer,
                           reset ? std::span<const double>() : std::span(state.carried));
  if (state.is_loss_scale_dynamic && scaler_.dynamic()) scaler_.set_state(state.loss_scale);
  learning_rates_.set_state(state.schedule);
  steps_ = state.steps;
  applied_ = state.applied;
  reset_at_ = reset ? state.applied : state.reset_at;
  consecutive_skips_ = state.consecutive_skips;
  if (verdict_ != nullptr) verdict_->restore(scaler_);
  turn_signs();
}

void WholeStep::measure() {
  // What came of signs is the mean gradient, or momentum, itself.
  const double divisor = are_signs() ? 1.0 : divisor_of(count());
  NormResult norm = parts_.stores.swapped_gradients != nullptr ? norm_.measure_taken()
                                                               : norm_.measure(kept_gradients());
  const bool is_unsent = are_signs() && unsent_.nonfinite != nullptr;
  if (is_unsent) norm = unsent_;
  double summed_norm = std::sqrt(norm.sum_of_squares);
  if (parts_.config.determinism == Determinism::mesh &&
      parts_.config.precision.dtype != DType::f64) {
    summed_norm = to_24_bits(summed_norm);
  }
  StepResult result = begin_result(*loss_, summed_norm / divisor);
  const bool overflow =
      is_unsent || (parts_.config.precision.check_overflow && norm.nonfinite != nullptr);
  if (is_unsent) {
    skip(str(norm.nonfinite->name(), ", of rank ", norm.nonfinite_rank), result);
  } else if (overflow) {
    skip(norm_.culprit(norm), result);
  }
  if (!overflow) require_finite(*loss_, result.step, parts_.config.precision);
  measured_ = {.result = std::move(result),
               .summed_norm = summed_norm,
               .divisor = divisor,
               .overflow = overflow};
}

StepResult WholeStep::by_norm() {
  StepResult result = std::move(measured_->result);
  const bool overflow = measured_->overflow;
  measured_.reset();
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

// Note [Recorded step].
void WholeStep::run_part(GraphedWork RecordedStep::*part, const std::function<void()>& work) {
  if (parts_.recorded == nullptr) return work();
  (parts_.recorded->*part).run(work);
}

void WholeStep::queue_norm() {
  if (verdict_->bring() && parts_.recorded != nullptr) {
    parts_.recorded->norm.forget();
    parts_.recorded->update.forget();
  }
  const std::vector<ConstView> gradients = kept_gradients();
  run_part(&RecordedStep::norm, [&] { verdict_->measure(gradients); });
  verdict_->gather();
}

// The updates of all groups are one piece of work, behind the verdict.
void WholeStep::queue_verdict() {
  Stores& stores = parts_.stores;
  parts_.rules.follow(learning_rates_, parts_.optimizer, next_update());
  if (parts_.recorded != nullptr) parts_.rules.bring_scalars(parts_.optimizer, next_update());
  StepArguments args = arguments();
  args.factor = verdict_->factor();
  args.skip = verdict_->skip();
  stores.update->begin(args, WeightUpdate::Kind::issued);
  run_part(&RecordedStep::update, [&] {
    verdict_->decide();
    stores.update->update_all();
    verdict_->send();
  });
}

StepResult WholeStep::by_verdict() {
  const auto [verdict, loss] = verdict_->read(totals_);
  require_targets(verdict.count);
  StepResult result =
      begin_result(loss, std::sqrt(verdict.sum_of_squares) / divisor_of(verdict.count));
  if (verdict.withheld != 0) require_finite(loss, result.step, parts_.config.precision);
  if (verdict.skip != 0) {
    skip(norm_.culprit(norm_.result(verdict.sum_of_squares, verdict.first_nonfinite)), result);
  } else {
    count_applied(result);
  }
  scaler_.follow(verdict.scale, verdict.at_minimum != 0, result.overflow);
  return result;
}

void WholeStep::skip(std::string culprit, StepResult& result) {
  result.outcome = StepOutcome::skipped_overflow;
  result.overflow = std::move(culprit);
  require_progress(++consecutive_skips_, parts_.config.precision.max_consecutive_skips,
                   result.overflow);
}

bool WholeStep::decide_early() {
  const std::vector<BatchLoss> coming = std::exchange(coming_, {});
  if (coming.empty() || must_wait(coming)) return false;
  const double count = totals_.count_with(parts_.world, coming);
  require_targets(count);
  set_update(factor_of(0.0, divisor_of(count)));
  updating_ = true;
  parts_.stores.update->begin(arguments(), WeightUpdate::Kind::during_backward);
  return true;
}

double WholeStep::divisor_of(double count) const {
  return scaler_.scale() * count / gradient_divisor(parts_.config, parts_.world.size());
}

StepArguments WholeStep::arguments() const {
  return {.optimizer = parts_.optimizer,
          .rules = parts_.rules,
          .factor = factor_.defined() ? factor_.view() : View(),
          .step = next_update()};
}

void WholeStep::set_update(double factor) {
  // The factor's memory is kept: every step then has the same peak.
  if (!factor_.defined()) factor_ = Tensor::empty({1}, DType::f32, Label::workspace);
  factor_.fill(factor);
  parts_.rules.follow(learning_rates_, parts_.optimizer, next_update());
}

void WholeStep::count_applied(StepResult& result) {
  learning_rates_.advance();
  parts_.rules.applied();
  ++applied_;
  consecutive_skips_ = 0;
  result.outcome = StepOutcome::applied;
}

double WholeStep::factor_of(double summed_norm, double divisor) const {
  return kernels::update_factor(summed_norm, divisor, parts_.config.gradient.clipping);
}

}  // namespace zinc::zero
