#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "core/cuda_backend.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/test_device.h"
#include "tests/kernels/test_gpu.h"

#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/grid.h"
#include "tests/emulator/tensor_core.h"
#endif

namespace zinc::test {
namespace {

Device test_device = kCpu;
Device current_device = kCpu;

}  // namespace

Device device() { return current_device; }
Device device_for(DType dtype) { return dtype == DType::f64 ? kCpu : test_device; }
bool runs_on_cuda() { return test_device.is_cuda(); }

DeviceScope::DeviceScope(Device device) : before_(current_device) {
  current_device = device;
  if (Context* context = CpuContext::current_for(device)) scope_.emplace(*context);
}
DeviceScope::~DeviceScope() { current_device = before_; }

#if defined(ZINC_CUDA_EMULATED)
namespace {

// What was launched belongs to the time before.
void finish_launches() {
  if (TestGpu::current() != nullptr) TestGpu::current()->synchronize();
}

}  // namespace

void set_schedule_seed(uint64_t seed) {
  finish_launches();
  emulator::set_seed(seed);
}
TensorCoreUse tensor_core_use() {
  finish_launches();
  const emulator::TensorCoreUse use = emulator::tensor_core_use();
  return {use.products, use.bank_conflicts};
}
bool counts_tensor_cores() { return runs_on_cuda(); }
#else
void set_schedule_seed(uint64_t) {}
bool counts_tensor_cores() { return false; }
TensorCoreUse tensor_core_use() { return {}; }
#endif

}  // namespace zinc::test

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--device=cuda") {
      zinc::test::test_device = {.kind = zinc::DeviceKind::cuda, .index = 0};
      zinc::test::current_device = zinc::test::test_device;
    } else if (flag != "--device=cpu") {
      std::fprintf(stderr, "unknown argument %s; --device=cpu and --device=cuda are known\n",
                   argv[i]);
      return 64;
    }
  }
  if (!zinc::test::runs_on_cuda()) return RUN_ALL_TESTS();
  try {
    const zinc::test::TestGpu gpu(zinc::test::test_device);
    return RUN_ALL_TESTS();
  } catch (const zinc::CudaError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 69;
  }
}
