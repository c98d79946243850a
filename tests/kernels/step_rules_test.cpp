#include "kernels/step_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zinc::kernels {
namespace step_rules_test {

TEST(UpdateFactor, WithoutClippingItOnlyDivides) {
  EXPECT_EQ(update_factor(1e6, 8.0, 0.0), 0.125F);
  EXPECT_EQ(clipping_divisor(125'000.0, 0.0), 1.0);
}

TEST(UpdateFactor, ANormBelowTheLimitIsLeftAlone) {
  EXPECT_EQ(update_factor(4.0, 8.0, 1.0), 0.125F);  // norm 0.5
}

// DeepSpeed: grads *= 1 / (f s), f = max(1, (n / s + 1e-6) / c).
TEST(UpdateFactor, ANormAboveTheLimitIsBroughtToIt) {
  const double scale = 1024.0;
  const float factor = update_factor(3.0 * scale, scale, 0.5);
  EXPECT_EQ(factor, static_cast<float>(1.0 / (scale * ((3.0 + 1e-6) / 0.5))));
  // The clipped gradient has the norm c n / (n + 1e-6); the factor is rounded once to f32.
  const double left = 3.0 * scale * static_cast<double>(factor);
  EXPECT_NEAR(left, 0.5 * 3.0 / (3.0 + 1e-6), 0.5 * 0x1p-24);
}

TEST(UpdateFactor, TheLimitItselfIsBarelyClipped) {
  EXPECT_GT(clipping_divisor(1.0, 1.0), 1.0);
  EXPECT_EQ(clipping_divisor(1.0 - 2e-6, 1.0), 1.0);
}

TEST(UpdateFactor, ANormThatIsNotFiniteIsNotClipped) {
  for (const double norm : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(update_factor(norm, 2.0, 1.0), 0.5F);
  }
}

}  // namespace step_rules_test
}  // namespace zinc::kernels
