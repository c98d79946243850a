// The hardware file of a GPU, emulated or real, in small.
#include <gtest/gtest.h>

#include "tests/bench/measured_hardware.h"

namespace zinc::bench {
namespace measure_hardware_cuda_test {

TEST(MeasureHardware, OfAGpu_HasEveryKeyAndItsHost) {
  const plan::Hardware hardware = measured_in_small({.kind = DeviceKind::cuda});
  EXPECT_EQ(hardware.device, DeviceKind::cuda);
  EXPECT_EQ(hardware.threads, 0);
  EXPECT_EQ(hardware.host->threads, 1);
  EXPECT_GT(hardware.host->update_bytes_per_second, 0.0);
}

}  // namespace measure_hardware_cuda_test
}  // namespace zinc::bench
