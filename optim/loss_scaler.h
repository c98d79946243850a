// optim/loss_scaler.h: the factor that keeps 16-bit float gradients in range.
//
// Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2, with DeepSpeed's rules
// (those of its ZeRO stages, on every stage): the scale halves after `hysteresis` overflows and
// doubles after `window` steps without one, never above kMaxLossScale: kernels/step_rules.h. An
// overflow at the minimum is an error. The scale that unscales a gradient is the one that scaled
// its loss: read scale() before the forward pass, call update() after the step.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/step_rules.h"
#include "optim/loss_scale_config.h"

namespace zinc::optim {

using kernels::kMaxLossScale;
using LossScalerState = kernels::LossScaleState;

class LossScaler {
 public:
  // Throws InvalidArgument where a member of the configuration is out of its range.
  explicit LossScaler(const LossScaleConfig& config);

  double scale() const { return state_.scale; }
  bool dynamic() const { return config_.dynamic; }

  // Once per step. With a static scale it only counts. Throws NumericsError where the step
  // overflowed and the scale is at its minimum already; `culprit` (may be empty) names what was not
  // finite, as in "rank 3: h.5.attn.weight".
  void update(bool overflow, std::string_view culprit = {});

  // The same where the device went by rules() already: `next` is the state after the step, which
  // overflowed `at_minimum` or did not.
  void follow(const LossScalerState& next, bool at_minimum, std::string_view culprit = {});
  kernels::LossScaleRules rules() const;

  const LossScalerState& state() const { return state_; }
  void set_state(const LossScalerState& state);

 private:
  LossScaleConfig config_;
  LossScalerState state_;
};

}  // namespace zinc::optim
