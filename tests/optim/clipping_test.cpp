#include "optim/clipping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace zinc::optim {
namespace {

TEST(GradientFactor, WithoutClippingItOnlyDivides) {
  const GradientFactor result = gradient_factor(1e6, 8.0, 0.0);
  EXPECT_EQ(result.factor, 0.125F);
  EXPECT_EQ(result.norm, 125'000.0);
  EXPECT_FALSE(result.clipped);
}

TEST(GradientFactor, ANormBelowTheLimitIsLeftAlone) {
  const GradientFactor result = gradient_factor(4.0, 8.0, 1.0);  // norm 0.5
  EXPECT_EQ(result.factor, 0.125F);
  EXPECT_FALSE(result.clipped);
}

// DeepSpeed: grads *= 1 / (f s), f = max(1, (n / s + 1e-6) / c).
TEST(GradientFactor, ANormAboveTheLimitIsBroughtToIt) {
  const double scale = 1024.0;
  const GradientFactor result = gradient_factor(3.0 * scale, scale, 0.5);
  EXPECT_EQ(result.norm, 3.0);
  EXPECT_TRUE(result.clipped);
  EXPECT_EQ(result.factor, static_cast<float>(1.0 / (scale * ((3.0 + 1e-6) / 0.5))));
  // What is left has the norm c n / (n + 1e-6); the factor is rounded once to f32.
  const double left = 3.0 * scale * static_cast<double>(result.factor);
  EXPECT_NEAR(left, 0.5 * 3.0 / (3.0 + 1e-6), 0.5 * 0x1p-24);
}

TEST(GradientFactor, TheLimitItselfIsBarelyClipped) {
  EXPECT_TRUE(gradient_factor(1.0, 1.0, 1.0).clipped);
  EXPECT_FALSE(gradient_factor(1.0 - 2e-6, 1.0, 1.0).clipped);
}

TEST(GradientFactor, WhatIsNotFiniteHasNoFactor) {
  for (const double norm : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(gradient_factor(norm, 2.0, 1.0).factor, 0.0F);
  }
  EXPECT_THROW(gradient_factor(1.0, 0.0, 1.0), InvalidArgument);
  EXPECT_THROW(gradient_factor(1.0, 1.0, -1.0), InvalidArgument);
}

}  // namespace
}  // namespace zinc::optim
