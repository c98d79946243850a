#include "optim/clipping.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace zinc::optim {

GradientFactor gradient_factor(double summed_norm, double divisor, double clipping) {
  require(divisor > 0.0 && std::isfinite(divisor),
          "gradient factor: the divisor must be positive and finite, got ", divisor);
  require(clipping >= 0.0, "gradient factor: clipping must not be negative, got ", clipping);
  GradientFactor result{.factor = 0.0F, .norm = summed_norm / divisor, .clipped = false};
  if (!std::isfinite(summed_norm)) return result;
  const double f = clipping > 0.0 ? std::max(1.0, (result.norm + 1e-6) / clipping) : 1.0;
  result.clipped = f > 1.0;
  result.factor = static_cast<float>(1.0 / (divisor * f));
  return result;
}

}  // namespace zinc::optim
