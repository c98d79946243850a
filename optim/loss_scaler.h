// optim/loss_scaler.h: the factor that keeps 16-bit float gradients in range.
//
// Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2, with DeepSpeed's rules
// (those of its ZeRO stages, on every stage): the scale halves after `hysteresis` overflows and
// doubles after `window` steps without one, never above kMaxLossScale. An overflow at the minimum
// is an error. The scale that unscales a gradient is the one that scaled its loss: read scale()
// before the forward pass, call update() after the step.
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/loss_scale_config.h"

namespace zinc::optim {

// Both this and its reciprocal are normal f32 numbers.
inline constexpr double kMaxLossScale = 0x1p126;

// What a checkpoint keeps.
struct LossScalerState {
  double scale = 1.0;
  int64_t steps = 0;           // update() calls so far
  int64_t last_overflow = -1;  // number of the last step that overflowed; -1: none
  int hysteresis = 1;          // overflows left before the scale halves
};

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

  const LossScalerState& state() const { return state_; }
  void set_state(const LossScalerState& state);

 private:
  LossScaleConfig config_;
  LossScalerState state_;
};

}  // namespace zinc::optim
