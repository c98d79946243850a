#include "core/phase_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "core/context.h"

namespace zinc {
namespace phase_clock_test {

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
    in_time = over.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
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

}  // namespace phase_clock_test
}  // namespace zinc
