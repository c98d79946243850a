#include "optim/clipping.h"

#include <cmath>

#include "core/error.h"
#include "kernels/step_rules.h"

namespace zinc::optim {

GradientFactor gradient_factor(double summed_norm, double divisor, double clipping) {
  require(divisor > 0.0 && std::isfinite(divisor),
          "gradient factor: the divisor must be positive and finite, got ", divisor);
  require(clipping >= 0.0, "gradient factor: clipping must not be negative, got ", clipping);
  GradientFactor result{.factor = 0.0F, .norm = summed_norm / divisor, .clipped = false};
  if (!std::isfinite(summed_norm)) return result;
  result.clipped = kernels::clipping_divisor(result.norm, clipping) > 1.0;
  result.factor = kernels::update_factor(summed_norm, divisor, clipping);
  return result;
}

}  // namespace zinc::optim
