// wall_clock_breakdown: the phases of a step.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "comm/local/local.h"
#include "core/phase_clock.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace wall_clock_breakdown_test {

using Seconds = std::chrono::duration<double>;

struct Measured {
  std::vector<PhaseSeconds> phases;
  std::vector<double> wall;  // seconds of the whole step
  std::vector<double> losses;
};

Measured train(int stage, bool on) {
  Measured measured;
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch.micro_batch = 2;
    config.batch.accumulation = 2;
    config.zero.stage = stage;
    config.wall_clock_breakdown = on;
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config, world);
    for (int64_t step = 0; step < 3; ++step) {
      const auto start = std::chrono::steady_clock::now();
      StepResult result;
      for (int64_t micro = 0; micro < 2; ++micro) {
        engine.backward(engine.forward(test::make_batch(4 * step + 2 * micro + world.rank())));
        result = engine.step();
        EXPECT_EQ(result.phases.has_value(), on && micro == 1);
      }
      if (world.rank() != 0) continue;
      measured.wall.push_back(Seconds(std::chrono::steady_clock::now() - start).count());
      measured.losses.push_back(result.loss);
      if (on) measured.phases.push_back(*result.phases);
    }
  });
  return measured;
}

TEST(WallClockBreakdown, PhasesOfTheEngineFillTheStepAndChangeNoBit) {
  for (const int stage : {0, 1, 2, 3}) {
    const Measured on = train(stage, true);
    ASSERT_EQ(on.phases.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const PhaseSeconds& seconds = on.phases[i];
      EXPECT_GT(seconds.forward, 0.0);
      EXPECT_GT(seconds.backward, 0.0);
      EXPECT_GT(seconds.gradient_reduction, 0.0);
      EXPECT_GT(seconds.step, 0.0);
      EXPECT_LE(seconds.forward + seconds.backward + seconds.step, on.wall[i]);
    }
    const Measured off = train(stage, false);
    EXPECT_EQ(off.losses, on.losses) << "stage " << stage;
  }
}

}  // namespace wall_clock_breakdown_test
}  // namespace zinc::zero
