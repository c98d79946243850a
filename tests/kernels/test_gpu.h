// tests/kernels/test_gpu.h: the GPU of the kernel tests, emulated or real: a stream that knows how
// much was launched, and memory of the device's own between canaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/allocator.h"
#include "core/cuda_backend.h"
#include "core/device.h"
#include "core/stream.h"

namespace zinc::test {

class CountingStream;

// Lives as long as the tests run; every array of a test is freed before.
class TestGpu {
 public:
  explicit TestGpu(Device device);  // throws CudaError
  ~TestGpu();
  TestGpu(const TestGpu&) = delete;
  TestGpu& operator=(const TestGpu&) = delete;
  static TestGpu* current();  // null: the tests run on the CPU

  // Kernels run on the GPU in this stream's order. A kernel of the CPU, launched while
  // test::device() is the CPU, runs at the call, after what was launched before.
  StreamRef stream();
  StreamRef other_stream();
  // Grows with every launch on either stream.
  uint64_t num_launches() const { return num_launches_; }

  Block allocate(int64_t bytes);
  // In the order of stream(), and no launch.
  void copy(void* to, const void* from, int64_t bytes);
  void synchronize();

 private:
  friend class CountingStream;
  uint64_t num_launches_ = 0;
  std::unique_ptr<CudaStreams> streams_;
  std::unique_ptr<Stream> device_stream_, other_device_stream_;
  std::unique_ptr<CountingStream> stream_, other_stream_;
  std::shared_ptr<Allocator> allocator_;
};

// Device memory whose surroundings are watched, as those of GuardedBytes are.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* get() const;

 private:
  size_t bytes_;
  Block block_;
};

}  // namespace zinc::test
