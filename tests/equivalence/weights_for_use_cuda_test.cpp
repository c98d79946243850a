// Weights for use on a GPU, wherever weights and states are: see weights_for_use_test.cpp. On the
// emulator under several schedules of its streams.
#include <gtest/gtest.h>

#include <iterator>

#include "tests/equivalence/gpu_schedules.h"
#include "tests/equivalence/weights_for_use_run.h"

namespace zinc::zero {
namespace weights_for_use_cuda_test {

using namespace weights_for_use;

class GpuWeightsForUse : public testing::TestWithParam<WhereKept> {
 protected:
  ~GpuWeightsForUse() override { choose(kSchedules[0]); }
};

TEST_P(GpuWeightsForUse, AreTheAverageAndChangeNoBitOfTraining) {
  static size_t next = 0;
  choose(kSchedules[next++ % std::size(kSchedules)]);
  expect_average(GetParam(), DType::bf16, {.kind = DeviceKind::cuda});
}

INSTANTIATE_TEST_SUITE_P(Reduced, GpuWeightsForUse, testing::ValuesIn(places()),
                         [](const auto& info) { return info.param.name; });

}  // namespace weights_for_use_cuda_test
}  // namespace zinc::zero
