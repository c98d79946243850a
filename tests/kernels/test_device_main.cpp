#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/test_device.h"
#include "tests/kernels/test_gpu.h"

#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/functions.h"
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

// Finishes the launches of the test before.
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
namespace {
bool write_launches(const std::string& path) { return emulator::write_launches(path); }
}  // namespace
#else
namespace {
bool write_launches(const std::string&) { return true; }
}  // namespace
void set_schedule_seed(uint64_t) {}
bool counts_tensor_cores() { return false; }
TensorCoreUse tensor_core_use() { return {}; }
#endif

}  // namespace zinc::test

// --device=cuda: on the GPU, or the emulated one. --launches=FILE: the emulator leaves the sizes of
// all launches there (tests/emulator/functions.h), for tests/structure/kernel_resources.sh; without
// it, where ZINC_LAUNCHES names a folder, in a file of this process there.
int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::string launches;
  constexpr std::string_view kLaunches = "--launches=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--device=cuda") {
      zinc::test::test_device = {.kind = zinc::DeviceKind::cuda, .index = 0};
      zinc::test::current_device = zinc::test::test_device;
    } else if (flag.starts_with(kLaunches)) {
      launches = flag.substr(kLaunches.size());
    } else if (flag != "--device=cpu") {
      std::fprintf(
          stderr,
          "unknown argument %s; --device=cpu, --device=cuda and --launches=FILE are known\n",
          argv[i]);
      return 64;
    }
  }
  if (!zinc::test::runs_on_cuda()) return RUN_ALL_TESTS();
  if (const char* folder = std::getenv("ZINC_LAUNCHES"); folder != nullptr && launches.empty()) {
    launches = zinc::str(folder, "/", program_invocation_short_name, ".", getpid());
  }
  try {
    const zinc::test::TestGpu gpu(zinc::test::test_device);
    const int status = RUN_ALL_TESTS();
    if (launches.empty() || zinc::test::write_launches(launches)) return status;
    std::fprintf(stderr, "cannot write %s\n", launches.c_str());
    return 74;
  } catch (const zinc::CudaError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 69;
  }
}
