// Times of kernels by events around their launches, on a GPU or the emulator.
#include "core/launch_times.h"

#include <gtest/gtest.h>

#include "core/context.h"
#include "kernels/fill.h"

namespace zinc {
namespace launch_times_cuda_test {

TEST(LaunchTimes, NameEveryLaunchSinceTheLastCall_TheLongestFirst) {
  Context context({.device = {.kind = DeviceKind::cuda}, .num_threads = 1});
  const ContextScope scope(context);
  const Block block = context.allocate(1 << 16, Label::workspace);
  const auto launch = [&](int64_t numel) {
    kernels::fill(
        {.y = View(block.data(), DType::f32, Shape{numel}, context.device()), .value = 1.0},
        context.compute());
  };
  launch(64);
  EXPECT_EQ(LaunchTimes::current(), nullptr);
  auto& times = context.slot<LaunchTimes>();
  times.turn_on();
  EXPECT_TRUE(times.take().empty());  // the first launch was not timed
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < round; ++i) launch(1 << 14);
    int64_t launches = 0;
    double last = 1e9;
    for (const KernelTime& time : times.take()) {
      launches += time.launches;
      EXPECT_FALSE(time.name.empty());
      EXPECT_GT(time.seconds, 0.0);
      EXPECT_LE(time.seconds, last);
      last = time.seconds;
    }
    EXPECT_EQ(launches, round);
  }
  EXPECT_TRUE(times.take().empty());
}

TEST(LaunchTimes, AsCsv) {
  EXPECT_EQ(csv_of({{.name = "a<b, c>", .launches = 2, .seconds = 1.5e-3}}),
            "Total Time (ns),Instances,Name\n1500000,2,\"a<b, c>\"\n");
}

}  // namespace launch_times_cuda_test
}  // namespace zinc
