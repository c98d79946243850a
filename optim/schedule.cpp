#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace zinc::optim {
namespace {

bool is_deepspeed_warmup(ScheduleKind kind) {
  return kind == ScheduleKind::warmup_lr || kind == ScheduleKind::warmup_decay_lr ||
         kind == ScheduleKind::warmup_cosine_lr;
}

bool needs_total(ScheduleKind kind) {
  return kind == ScheduleKind::linear || kind == ScheduleKind::cosine ||
         kind == ScheduleKind::warmup_decay_lr || kind == ScheduleKind::warmup_cosine_lr;
}

constexpr int64_t kMostSteps = int64_t{1} << 53;  // all integers up to it are exact in f64

void check(const ScheduleConfig& config, int64_t warmup, int64_t total) {
  const std::string_view name = name_of(config.kind);
  const auto not_negative = [&](std::string_view what, double value) {
    require(value >= 0.0 && std::isfinite(value), name, ": ", what,
            " must be finite and not negative, got ", value);
  };
  require(warmup >= 0, name, ": warm-up steps must not be negative, got ", warmup);
  require(!needs_total(config.kind) || total > 0, name,
          ": the total number of steps is needed and must be positive, got ", total);
  not_negative("min_lr", config.min_lr);
  not_negative("warmup_min_lr", config.warmup_min_lr);
  not_negative("warmup_max_lr", config.warmup_max_lr.value_or(0.0));
  not_negative("cycle_min_lr", config.cycle_min_lr);
  not_negative("cycle_max_lr", config.cycle_max_lr);
  not_negative("decay_lr_rate", config.decay_lr_rate);
  not_negative("lr_range_test_min_lr", config.range_test_min_lr);
  for (const int64_t steps :
       {warmup, total, config.step_size, config.cycle_first_step_size,
        config.cycle_second_step_size.value_or(1), config.cycle_first_stair_count,
        config.cycle_second_stair_count.value_or(0), config.decay_step_size,
        config.range_test_step_size}) {
    require(steps <= kMostSteps, name, ": at most 2^53 steps can be counted, got ", steps);
  }
  require(config.step_size > 0, name, ": step_size must be positive, got ", config.step_size);
  require(config.cycle_first_step_size > 0 && config.cycle_second_step_size.value_or(1) > 0, name,
          ": the two halves of the cycle must be positive");
  require(config.decay_step_size >= 0 && config.cycle_first_stair_count >= 0 &&
              config.cycle_second_stair_count.value_or(0) >= 0,
          name, ": decay_step_size and stair counts must not be negative");
  require(config.range_test_step_size > 0, name, ": lr_range_test_step_size must be positive, got ",
          config.range_test_step_size);
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "Constant";
    case ScheduleKind::linear:
      return "Linear";
    case ScheduleKind::cosine:
      return "Cosine";
    case ScheduleKind::step_lr:
      return "StepLR";
    case ScheduleKind::warmup_lr:
      return "WarmupLR";
    case ScheduleKind::warmup_decay_lr:
      return "WarmupDecayLR";
    case ScheduleKind::warmup_cosine_lr:
      return "WarmupCosineLR";
    case ScheduleKind::one_cycle:
      return "OneCycle";
    case ScheduleKind::lr_range_test:
      return "LRRangeTest";
  }
  return "?";
}

std::string_view name_of(WarmupShape shape) { return shape == WarmupShape::log ? "log" : "linear"; }

int64_t default_warmup_steps(ScheduleKind kind) { return is_deepspeed_warmup(kind) ? 1000 : 0; }

Schedule::Schedule(const ScheduleConfig& config, const OptimizerConfig& optimizer,
                   std::optional<int64_t> run_updates)
    : config_(config),
      base_lr_(optimizer.hyper.lr),
      moves_momentum_(config.kind == ScheduleKind::one_cycle && config.cycle_momentum &&
                      optimizer.kind != OptimizerKind::sgd),
      warmup_(config.warmup_steps.value_or(default_warmup_steps(config.kind))),
      total_(config.total_steps.value_or(run_updates.value_or(0))) {
  check(config_, warmup_, total_);
  if (is_deepspeed_warmup(config_.kind)) warmup_ = std::max<int64_t>(2, warmup_);
}

double Schedule::lr_at(int64_t update) const {
  require(update >= 0, "schedule: updates count from 0, got ", update);
  const auto n = static_cast<double>(update);
  const auto warmup = static_cast<double>(warmup_);
  switch (config_.kind) {
    case ScheduleKind::constant:
    case ScheduleKind::linear:
    case ScheduleKind::cosine:
      break;
    case ScheduleKind::step_lr:
      return base_lr_ * std::pow(config_.gamma, static_cast<double>(update / config_.step_size));
    default:
      return deepspeed_lr(update - 1);
  }
  if (update < warmup_) return base_lr_ * ((n + 1.0) / warmup);
  if (config_.kind == ScheduleKind::constant) return base_lr_;
  const double rest = std::max(1.0, static_cast<double>(total_) - warmup);
  const double progress = std::min(1.0, (n - warmup) / rest);
  const double share = config_.kind == ScheduleKind::linear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return config_.min_lr + (base_lr_ - config_.min_lr) * share;
}

double Schedule::warmup_shape(int64_t k) const {
  return config_.warmup_shape == WarmupShape::log
             ? (1.0 / std::log(static_cast<double>(warmup_))) * std::log(static_cast<double>(k + 1))
             : static_cast<double>(k) / static_cast<double>(warmup_);
}

double Schedule::deepspeed_lr(int64_t k) const {
  const auto kd = static_cast<double>(k);
  const auto rest = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  const double min_lr = config_.warmup_min_lr;
  switch (config_.kind) {
    case ScheduleKind::warmup_lr:
    case ScheduleKind::warmup_decay_lr: {
      const bool decays = config_.kind == ScheduleKind::warmup_decay_lr;
      const double max_lr = config_.warmup_max_lr.value_or(decays ? kWarmupDecayMaxLr : base_lr_);
      if (k < 0) return min_lr;
      double share = 1.0;
      if (k < warmup_) {
        share = warmup_shape(k);
      } else if (decays) {
        share = std::max(0.0, static_cast<double>(total_ - k) / rest);
      }
      return min_lr + (max_lr - min_lr) * share;
    }
    case ScheduleKind::warmup_cosine_lr: {
      if (k < 0) return 0.0;
      const double low = config_.warmup_min_ratio;
      if (k < warmup_) return base_lr_ * (low + warmup_shape(k) * (1.0 - low));
      const double progress = std::min(1.0, static_cast<double>(k - warmup_ + 1) / rest);
      const double share = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
      const double end = config_.cosine_min_ratio;
      return base_lr_ * std::max(0.0, end + (1.0 - end) * share);
    }
    case ScheduleKind::one_cycle: {
      if (k < 0) return config_.cycle_min_lr;
      const int64_t after = k - cycle_length() + 1;
      if (after <= 0) {
        return config_.cycle_min_lr +
               (config_.cycle_max_lr - config_.cycle_min_lr) * one_cycle_share(k);
      }
      if (config_.decay_step_size == 0) return config_.cycle_min_lr;
      const double interval =
          static_cast<double>(after) / static_cast<double>(config_.decay_step_size);
      return config_.cycle_min_lr / (1.0 + config_.decay_lr_rate * interval);
    }
    default: {  // LRRangeTest
      double interval = (kd + 1.0) / static_cast<double>(config_.range_test_step_size);
      if (config_.range_test_staircase) interval = std::floor(interval);
      return config_.range_test_min_lr * (1.0 + config_.range_test_step_rate * interval);
    }
  }
}

int64_t Schedule::cycle_length() const {
  return config_.cycle_first_step_size +
         config_.cycle_second_step_size.value_or(config_.cycle_first_step_size);
}

// Note [OneCycle]
// With first and second the lengths of the halves, total = first + second, i = k + 1, the share
// s(k) rises linearly from 0 at i = 0 to 1 at i = first and falls back to 0 at i = total; there it
// wraps: at k = total - 1 it is 0 again. A stair count q > 0 of a half makes it floor(s q) / q,
// with s taken from the integer offset to the nearer end. For k < total
//   lr = min + (max - min) s,  beta1 = max_mom - (max_mom - min_mom) s
// and from k = total on, with d = (k - total + 1) / decay_step_size,
//   lr = min / (1 + decay_lr_rate d),  beta1 = max_mom (1 + decay_mom_rate d)
// where decay_step_size 0 or a rate of 0 means no decay. Update 0 (k = -1) runs with min and
// min_mom.
double Schedule::one_cycle_share(int64_t k) const {
  const auto total = static_cast<double>(cycle_length());
  const auto first = static_cast<double>(config_.cycle_first_step_size);
  const double second = total - first;
  const auto i = static_cast<double>(k + 1);
  const double ratio = first / total;
  const double cycle = std::floor(1.0 + i / total);
  const double x = 1.0 + i / total - cycle;
  const bool rising = x <= ratio;
  const int64_t stairs =
      rising ? config_.cycle_first_stair_count
             : config_.cycle_second_stair_count.value_or(config_.cycle_first_stair_count);
  if (stairs == 0) return rising ? x / ratio : (x - 1.0) / (ratio - 1.0);
  const auto q = static_cast<double>(stairs);
  const double offset = std::fmod(i, total);
  const double position = offset <= first ? offset * q / first : (total - offset) * q / second;
  return std::floor(position) / q;
}

std::optional<double> Schedule::beta1_at(int64_t update) const {
  if (!moves_momentum_) return std::nullopt;
  const int64_t k = update - 1;
  const double low = config_.cycle_min_mom;
  const double high = config_.cycle_max_mom;
  if (k < 0) return low;
  const int64_t after = k - cycle_length() + 1;
  if (after <= 0) return high - (high - low) * one_cycle_share(k);
  if (config_.decay_step_size == 0) return high;
  const double interval = static_cast<double>(after) / static_cast<double>(config_.decay_step_size);
  return high * (1.0 + config_.decay_mom_rate * interval);
}

double Schedule::lr() const { return state_.fixed_lr.value_or(lr_at(state_.updates)); }

void Schedule::set_lr(std::optional<double> lr) {
  require(!lr || (*lr >= 0.0 && std::isfinite(*lr)),
          "schedule: lr must be finite and not negative, got ", lr.value_or(0.0));
  state_.fixed_lr = lr;
}

void Schedule::apply(HyperParameters& hyper, double group_scale) const {
  hyper.lr = lr() * group_scale;
  if (const std::optional<double> beta1 = beta1_at(state_.updates); beta1.has_value()) {
    hyper.beta1 = *beta1;
    hyper.beta2 = 0.99;
  }
}

void Schedule::set_state(const ScheduleState& state) {
  require(state.updates >= 0, "schedule: the saved number of updates is negative: ", state.updates);
  if (state.fixed_lr.has_value()) set_lr(*state.fixed_lr);
  state_ = state;
}

}  // namespace zinc::optim
