// Collectives of GPUs through pinned host memory, on the emulator: threads with an emulated GPU
// each.
#if defined(ZINC_CUDA_EMULATED)

#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "tests/comm/checks.h"
#include "tests/comm/gpu_array.h"
#include "tests/comm/on_gpu.h"

namespace zinc::comm::testing {
namespace staged_cuda_test {

using Parameters = std::tuple<int, Check>;

class GpuStaged : public ::testing::TestWithParam<Parameters> {};

TEST_P(GpuStaged, Passes) {
  const auto& [size, check] = GetParam();
  ConnectOptions options = nccl_options(std::chrono::seconds(60));
  options.spread_devices = false;
  options.device_collectives = DeviceCollectives::staged;
  const auto body = check.run;
  run_ranks(make_local_group(size), options, [body](World& world) {
    EXPECT_EQ(world.communicator().backend(), "local");
    const auto group = std::make_unique<OnGpu>(world.communicator().split(0, world.rank()),
                                               world.context().device());
    body({.group = *group, .context = world.context()});
    world.context().synchronize();
  });
}

std::vector<Parameters> parameters() {
  std::vector<Parameters> all;
  for (const int size : {1, 2, 3}) {
    for (const Check& check : kChecks) {
      // A rank alone sums on its GPU, whose kernels take no f64.
      if (size == 1 && check.run == ReduceScatter_AnyFloat_IsTheWrittenOutTree) continue;
      all.emplace_back(size, check);
    }
  }
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [size, check] = info.param;
  return std::to_string(size) + "_" + check.name;
}

INSTANTIATE_TEST_SUITE_P(All, GpuStaged, ::testing::ValuesIn(parameters()), name_of_case);

}  // namespace staged_cuda_test
}  // namespace zinc::comm::testing

#endif
