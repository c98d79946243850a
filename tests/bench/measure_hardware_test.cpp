// `zinc bench ceilings --json` with sizes that end at once: every key is there, and the file can be
// read.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/bench/measured_hardware.h"

namespace zinc::bench {
namespace measure_hardware_test {

TEST(MeasureHardware, OfACpu_HasEveryKeyAndTheCopiesBetweenItsArenas) {
  const plan::Hardware hardware = measured_in_small(kCpu);
  EXPECT_EQ(hardware.device, DeviceKind::cpu);
  EXPECT_EQ(hardware.threads, 1);
  EXPECT_EQ(hardware.host->update_bytes_per_second, 0.0);  // the host computes as the device does
}

TEST(HostRates, CopyTwiceAsLargeTakesNoLessTime) {
  Context context({.num_threads = 1});
  // 64 KiB and 16 MiB: the larger one is 256 times the work, so time grows; a rate that forgot its
  // bytes would be 256 times as high.
  // The highest of several: whatever interrupts a copy makes it slower.
  const auto rate = [&](int64_t bytes) {
    double highest = 0.0;
    for (int i = 0; i < 10; ++i) {
      const plan::HostRates rates = measure_host_rates(context, {.bytes = bytes, .seconds = 0.0});
      highest = std::max(highest, rates.to_host_bytes_per_second);
    }
    return highest;
  };
  const double small = rate(int64_t{64} << 10);
  const double large = rate(int64_t{16} << 20);
  EXPECT_LT(static_cast<double>(int64_t{64} << 10) / small,
            static_cast<double>(int64_t{16} << 20) / large);
}

}  // namespace measure_hardware_test
}  // namespace zinc::bench
