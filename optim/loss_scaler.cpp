#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace zinc::optim {
namespace {

void check(const LossScaleConfig& config) {
  if (!config.dynamic) {
    require(config.static_scale > 0.0 && config.static_scale <= kMaxLossScale,
            "loss scale: a static scale must lie in (0, 2^126], got ", config.static_scale);
    return;
  }
  require(config.initial_scale_power >= 0 && config.initial_scale_power <= 126,
          "loss scale: initial_scale_power must lie in [0, 126], got ", config.initial_scale_power);
  require(config.window > 0, "loss scale: the window must be positive, got ", config.window);
  require(config.hysteresis >= 1, "loss scale: hysteresis must be at least 1, got ",
          config.hysteresis);
  require(config.min_scale > 0.0 && config.min_scale <= kMaxLossScale,
          "loss scale: min_scale must lie in (0, 2^126], got ", config.min_scale);
}

}  // namespace

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config) {
  check(config);
  state_.scale = config.dynamic
                     ? std::max(std::ldexp(1.0, config.initial_scale_power), config.min_scale)
                     : config.static_scale;
  state_.hysteresis = config.hysteresis;
}

kernels::LossScaleRules LossScaler::rules() const {
  return {.dynamic = config_.dynamic,
          .consecutive_hysteresis = config_.consecutive_hysteresis,
          .hysteresis = config_.hysteresis,
          .window = config_.window,
          .min_scale = config_.min_scale};
}

void LossScaler::update(bool overflow, std::string_view culprit) {
  LossScalerState next = state_;
  const bool at_minimum = !kernels::advance_loss_scale(rules(), overflow, next);
  follow(next, at_minimum, culprit);
}

void LossScaler::follow(const LossScalerState& next, bool at_minimum, std::string_view culprit) {
  state_ = next;
  if (!at_minimum) return;
  throw NumericsError(
      str("step ", state_.steps, ": the gradient is not finite",
          culprit.empty() ? "" : str(" (first: ", culprit, ")"),
          ". Current loss scale already at minimum (", state_.scale,
          ") - cannot decrease scale anymore. Train in bf16, or lower the learning rate"));
}

void LossScaler::set_state(const LossScalerState& state) {
  require(state.scale > 0.0 && state.scale <= kMaxLossScale && state.steps >= 0 &&
              state.last_overflow < state.steps && state.last_overflow >= -1 &&
              state.hysteresis >= 1,
          "loss scale: the saved state is not valid: scale ", state.scale, ", steps ", state.steps,
          ", last overflow ", state.last_overflow, ", hysteresis ", state.hysteresis);
  state_ = state;
}

}  // namespace zinc::optim
