// wall_clock_breakdown: the phases of a step.
#include "zero/trace/phase_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "comm/local/local.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace phase_clock_test {

using Seconds = std::chrono::duration<double>;
constexpr auto kNap = std::chrono::milliseconds(20);
constexpr double kNapSeconds = 0.020;

void nap() { std::this_thread::sleep_for(kNap); }

TEST(PhaseClock, CountsEachPhaseUntilItsWorkIsDone) {
  Context context({.execution = ContextOptions::Execution::concurrent});
  PhaseClock clock(true, context);
  for (int micro = 0; micro < 2; ++micro) {
    const auto forward = clock.start();
    context.compute().submit("nap", nap);
    clock.stop(forward, &PhaseSeconds::forward);
  }
  const auto backward = clock.start();
  const StreamRef reduce = context.stream(StreamRole::reduce);
  clock.begin_reduction(reduce);
  std::promise<void> backward_is_over;
  std::atomic<bool> in_time = false;
  reduce.submit("nap", [&, over = backward_is_over.get_future().share()] {
    in_time = over.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    nap();
  });
  clock.end_reduction(reduce);
  clock.stop(backward, &PhaseSeconds::backward);
  backward_is_over.set_value();

  const std::optional<PhaseSeconds> seconds = clock.take();
  ASSERT_TRUE(seconds.has_value());
  EXPECT_GE(seconds->forward, 2 * kNapSeconds);
  EXPECT_GE(seconds->gradient_reduction, kNapSeconds);
  EXPECT_TRUE(in_time) << "backward waited for the reduction";
  EXPECT_EQ(seconds->step, 0.0);
  EXPECT_EQ(clock.take()->forward, 0.0);  // taken
  EXPECT_EQ(clock.take()->gradient_reduction, 0.0);
}

TEST(PhaseClock, OffItMeasuresNothing) {
  Context context({.execution = ContextOptions::Execution::concurrent});
  PhaseClock clock(false, context);
  const auto start = clock.start();
  EXPECT_EQ(start, PhaseClock::Instant());
  clock.begin_reduction(context.stream(StreamRole::reduce));
  clock.end_reduction(context.stream(StreamRole::reduce));
  clock.stop(start, &PhaseSeconds::step);
  EXPECT_FALSE(clock.take().has_value());
}

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

TEST(PhaseClock, PhasesOfTheEngineFillTheStepAndChangeNoBit) {
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

}  // namespace phase_clock_test
}  // namespace zinc::zero
