// tests/kernels/test_device.h: the device that the kernel tests run on.
//
// The tests run on the CPU; `zinc_tests_kernels --device=cuda` runs them on the CUDA kernels, of a
// GPU or of the emulator. There the arrays of tests/kernels/host_array.h have device memory too.
#pragma once

#include <cstdint>
#include <optional>

#include "core/context.h"
#include "core/device.h"
#include "core/dtype.h"

namespace zinc::test {

// The device of every HostArray's view that is taken now.
Device device();
// The device where a test computes with this dtype: the CPU for f64, the oracle; the tests' device
// for the others.
Device device_for(DType dtype);
bool runs_on_cuda();

// device() for a scope, and where a CpuContext is there, its context for that device.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device before_;
  std::optional<ContextScope> scope_;
};

// Orders in which a kernel's threads and blocks run from now on; nothing on the CPU and on a GPU.
void set_schedule_seed(uint64_t seed);
// The address sanitizer looks for other mistakes than an order brings out, some ten times as
// slowly.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr int kNumSchedules = 2;
#else
inline constexpr int kNumSchedules = 20;
#endif

// The use of tensor cores by all kernels so far, where the device can tell; zeros on the CPU.
struct TensorCoreUse {
  uint64_t products = 0;
  uint64_t bank_conflicts = 0;
};
TensorCoreUse tensor_core_use();
// False on the CPU and on a GPU, where nothing counts.
bool counts_tensor_cores();

}  // namespace zinc::test
