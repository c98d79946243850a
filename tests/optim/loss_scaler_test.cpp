#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace zinc::optim {
namespace loss_scaler_test {

// The scale before every step; 'x' is a step that overflows, '.' one that does not.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> seen;
  for (const char step : steps) {
    seen.push_back(scaler.scale());
    scaler.update(step == 'x');
  }
  seen.push_back(scaler.scale());
  return seen;
}

using Scales = std::vector<double>;

LossScaleConfig dynamic(int power, int64_t window, int hysteresis) {
  return {
      .dynamic = true, .initial_scale_power = power, .window = window, .hysteresis = hysteresis};
}

TEST(LossScaler, StaticScaleNeverMoves) {
  LossScaler scaler({.static_scale = 128.0});
  EXPECT_EQ(scales(scaler, "x.xx..."), Scales(8, 128.0));
  EXPECT_FALSE(scaler.dynamic());
}

TEST(LossScaler, HalvesAtEveryOverflowWithoutHysteresis) {
  LossScaler scaler(dynamic(5, 1000, 1));
  EXPECT_EQ(scales(scaler, "xx.x"), (Scales{32, 16, 8, 8, 4}));
}

// DeepSpeed's DynamicLossScaler: `stable = it - last - 1`, so after the start (last = -1) the first
// growth is one step later than `window` steps: at it = window.
TEST(LossScaler, DoublesAfterAWindowWithoutOverflow) {
  LossScaler scaler(dynamic(2, 3, 1));
  EXPECT_EQ(scales(scaler, "......."), (Scales{4, 4, 4, 4, 8, 8, 8, 16}));
  LossScaler after(dynamic(2, 3, 1));
  EXPECT_EQ(scales(after, "x......."), (Scales{4, 2, 2, 2, 2, 4, 4, 4, 8}));
}

TEST(LossScaler, HysteresisToleratesOverflows_AndIsNotRefilledBetweenThem) {
  LossScaler scaler(dynamic(5, 1000, 3));
  EXPECT_EQ(scales(scaler, "x.x.x.x"), (Scales{32, 32, 32, 32, 32, 16, 16, 8}));
}

TEST(LossScaler, ConsecutiveHysteresisIsRefilledAtEveryCleanStep) {
  LossScaleConfig config = dynamic(5, 1000, 2);
  config.consecutive_hysteresis = true;
  LossScaler scaler(config);
  EXPECT_EQ(scales(scaler, "x.x.xx"), (Scales{32, 32, 32, 32, 32, 32, 16}));
  // Once it is used up every further overflow halves, until a clean step.
  EXPECT_EQ(scales(scaler, "x.x"), (Scales{16, 8, 8, 8}));
}

TEST(LossScaler, AGrowthRefillsTheHysteresis) {
  LossScaler scaler(dynamic(3, 2, 2));
  EXPECT_EQ(scaler.state().hysteresis, 2);
  scales(scaler, "x");
  EXPECT_EQ(scaler.state().hysteresis, 1);
  EXPECT_EQ(scales(scaler, "...x"), (Scales{8, 8, 8, 16, 16}));
}

TEST(LossScaler, MinimumIsAnErrorThatNamesTheCulprit) {
  LossScaleConfig config = dynamic(1, 1000, 1);
  config.min_scale = 0.75;
  LossScaler scaler(config);
  EXPECT_EQ(scales(scaler, "xx"), (Scales{2, 1, 0.75}));
  try {
    scaler.update(true, "rank 3: h.5.attn.weight");
    FAIL() << "no error";
  } catch (const NumericsError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 3: h.5.attn.weight"), std::string::npos) << text;
    EXPECT_NE(text.find("Current loss scale already at minimum"), std::string::npos) << text;
  }
}

TEST(LossScaler, ScaleStopsGrowingWhereItsReciprocalIsNoLongerNormal) {
  LossScaler scaler(dynamic(126, 1, 1));
  EXPECT_EQ(scales(scaler, "...."), Scales(5, 0x1p126));
}

TEST(LossScaler, StateGoesOnWhereItWasTaken) {
  const std::string before = "..x...x";
  const std::string after = "..x.x....x";
  LossScaler whole(dynamic(6, 2, 2));
  scales(whole, before);
  LossScaler resumed(dynamic(6, 2, 2));
  resumed.set_state(whole.state());
  EXPECT_EQ(scales(resumed, after), scales(whole, after));
  EXPECT_THROW(resumed.set_state({.scale = -1.0}), InvalidArgument);
}

TEST(LossScaler, ValuesOutOfRangeAreRefused) {
  EXPECT_THROW(LossScaler({.static_scale = 0.0}), InvalidArgument);
  EXPECT_THROW(LossScaler(dynamic(127, 1, 1)), InvalidArgument);
  EXPECT_THROW(LossScaler(dynamic(1, 0, 1)), InvalidArgument);
  EXPECT_THROW(LossScaler(dynamic(1, 1, 0)), InvalidArgument);
}

}  // namespace loss_scaler_test
}  // namespace zinc::optim
