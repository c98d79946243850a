// tests/bench/measured_hardware.h: a hardware file of this machine whose figures say nothing.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bench/host_rates.h"
#include "bench/measure_hardware.h"
#include "comm/local/local.h"
#include "files/json/parser.h"
#include "plan/hardware.h"

namespace zinc::bench {

// Measured by one rank, written and read back.
inline plan::Hardware measured_in_small(Device device) {
  plan::Hardware hardware;
  comm::run_local_ranks(1, {.device = device, .num_threads = 1}, [&](comm::World& world) {
    const std::vector<CeilingFigure> ceilings{
        {.name = "stream read 1 write 0 update 0", .unit = "GB/s", .median = 1.0, .best = 2.0},
        {.name = "stream read 0 write 1 update 0", .unit = "GB/s", .median = 1.0, .best = 1.5}};
    hardware = measure_hardware(world, ceilings, {.name = "test", .seconds = 0.0, .shrink = 64});
  });
  EXPECT_DOUBLE_EQ(hardware.read_bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(hardware.write_bytes_per_second, 1.5e9);
  for (const double rate :
       {hardware.gemm.f32, hardware.gemm.bf16, hardware.gemm.f16, hardware.attention.f32,
        hardware.attention.bf16, hardware.attention.f16, hardware.other_flops,
        hardware.same_host.all_gather.bytes_per_second,
        hardware.same_host.reduce_scatter.bytes_per_second,
        hardware.host->to_device_bytes_per_second, hardware.host->to_host_bytes_per_second}) {
    EXPECT_GT(rate, 0.0);
    EXPECT_TRUE(std::isfinite(rate));
  }
  const std::string text = plan::json_of(hardware);
  EXPECT_EQ(plan::json_of(plan::parse_hardware(files::json::parse(text, "hardware.json"))), text);
  return hardware;
}

}  // namespace zinc::bench
