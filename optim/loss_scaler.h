// optim/loss_scaler.h: the factor that keeps 16-bit float gradients in range.
//
// Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2, with the rules of
// DeepSpeed's ZeRO stages on every stage (kernels/step_rules.h). The scale halves after
// `hysteresis` overflows. It doubles after `window` steps without one, up to kMaxLossScale. An
// overflow at the minimum is an error. The scale that scaled a loss also unscales its gradient:
// read scale() before the forward pass, call update() after the step.
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

  // Call once per step. With a static scale it only counts. Throws NumericsError if the step
  // overflowed at the minimum scale. `culprit` (may be empty) names the tensor that was not finite:
  // "rank 3: h.5.attn.weight".
  void update(bool overflow, std::string_view culprit = {});

  // The same for a device that has applied rules() itself. `next`: the state after the step.
  // `at_minimum`: the step overflowed at the minimum scale.
  void follow(const LossScalerState& next, bool at_minimum, std::string_view culprit = {});
  kernels::LossScaleRules rules() const;

  const LossScalerState& state() const { return state_; }
  void set_state(const LossScalerState& state);

 private:
  LossScaleConfig config_;
  LossScalerState state_;
};

}  // namespace zinc::optim
