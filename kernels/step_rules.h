// kernels/step_rules.h: what becomes of an optimizer step, by the same functions on host and
// device, so that the bits are the same: the loss scale's rules and the factor of the update.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace zinc::kernels {

// Both this and its reciprocal are normal f32 numbers.
inline constexpr double kMaxLossScale = 0x1p126;

struct LossScaleRules {
  bool dynamic = false;
  bool consecutive_hysteresis = false;
  int32_t hysteresis = 1;
  int64_t window = 1;
  double min_scale = 1.0;
};

// The state of the loss scale that a checkpoint keeps.
struct LossScaleState {
  double scale = 1.0;
  int64_t steps = 0;           // so far
  int64_t last_overflow = -1;  // number of the last step that overflowed; -1: none
  int32_t hysteresis = 1;      // overflows left before the scale halves
};

// Once per step. False where the step overflowed and the scale is at its minimum already.
ZINC_HOST_DEVICE inline bool advance_loss_scale(const LossScaleRules& rules, bool overflow,
                                                LossScaleState& state) {
  const int64_t step = state.steps++;
  if (overflow) state.last_overflow = step;
  if (!rules.dynamic) return true;
  if (overflow) {
    if (state.hysteresis > 1) {
      --state.hysteresis;
      return true;
    }
    if (state.scale <= rules.min_scale) return false;
    const double half = state.scale / 2.0;
    state.scale = half < rules.min_scale ? rules.min_scale : half;
    return true;
  }
  if (rules.consecutive_hysteresis) state.hysteresis = rules.hysteresis;
  const int64_t clean = step - state.last_overflow - 1;
  if (clean > 0 && clean % rules.window == 0) {
    state.hysteresis = rules.hysteresis;
    const double twice = state.scale * 2.0;
    state.scale = kMaxLossScale < twice ? kMaxLossScale : twice;
  }
  return true;
}

ZINC_HOST_DEVICE inline bool is_finite_number(double value) { return value - value == 0.0; }

// The divisor of a gradient that is clipped to c = `clipping` (0: off): max(1, (norm + 1e-6) / c),
// DeepSpeed's form of Pascanu et al., ICML 2013, algorithm 1. A norm up to c - 1e-6 is left alone,
// a larger one becomes c norm / (norm + 1e-6).
ZINC_HOST_DEVICE inline double clipping_divisor(double norm, double clipping) {
  if (!(clipping > 0.0)) return 1.0;
  const double f = (norm + 1e-6) / clipping;
  return 1.0 < f ? f : 1.0;
}

// The factor that turns a summed gradient into the gradient of the step. A backward pass leaves the
// sum, over micro-batches and ranks, of the gradients of scaled losses. Divided by divisor = loss
// scale x count (tokens or micro-batches), the sum is the mean gradient; its norm is summed_norm /
// divisor, and it is then clipped. Computed in f64, rounded once. A norm that is not finite passes
// through where the overflow check is off: the update then makes NaN, as it would without clipping.
ZINC_HOST_DEVICE inline float update_factor(double summed_norm, double divisor, double clipping) {
  if (!is_finite_number(summed_norm)) return static_cast<float>(1.0 / divisor);
  return static_cast<float>(1.0 / (divisor * clipping_divisor(summed_norm / divisor, clipping)));
}

}  // namespace zinc::kernels
