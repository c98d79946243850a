#include "tests/kernels/test_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/kernels/test_device.h"

#if defined(ZINC_CUDA_EMULATED) && defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ZINC_DEVICE_MEMORY_IS_SANITIZED 1
#endif

namespace zinc::test {

// Counts launches: kernels call native() on a GPU and enqueue() on the emulator.
class CountingStream final : public Stream {
 public:
  CountingStream(Stream& on_device, uint64_t& num_launches)
      : Stream(StreamKind::cuda, "test", 0), on_device_(on_device), num_launches_(num_launches) {}
  ~CountingStream() override { on_device_.synchronize(); }

  void enqueue(const char* label, Task task) override {
    ++num_launches_;
    if (device().is_cuda()) return on_device_.enqueue(label, std::move(task));
    on_device_.synchronize();
    task();
  }
  Event record() override { return on_device_.record(); }
  void wait(const Event& event) override { on_device_.wait(event); }
  void synchronize() override { on_device_.synchronize(); }
  void* native() const override {
    ++num_launches_;
    return on_device_.native();
  }

 private:
  Stream& on_device_;
  uint64_t& num_launches_;
};

namespace {

TestGpu* current_gpu = nullptr;

constexpr size_t kDeviceGuard = 256;
constexpr std::byte kDeviceCanary{0xa5};

}  // namespace

TestGpu* TestGpu::current() { return current_gpu; }

TestGpu::TestGpu(Device device)
    : streams_(make_cuda_streams(device)),
      device_stream_(streams_->make_stream("test", 0, nullptr)),
      other_device_stream_(streams_->make_stream("other", 0, nullptr)),
      stream_(std::make_unique<CountingStream>(*device_stream_, num_launches_)),
      other_stream_(std::make_unique<CountingStream>(*other_device_stream_, num_launches_)),
      allocator_(Allocator::create(make_cuda_memory_source(device))) {
  current_gpu = this;
}
TestGpu::~TestGpu() { current_gpu = nullptr; }

StreamRef TestGpu::stream() { return *stream_; }
StreamRef TestGpu::other_stream() { return *other_stream_; }
Block TestGpu::allocate(int64_t bytes) {
  return allocator_->allocate(bytes, Tier::device, Label::workspace, *device_stream_);
}
void TestGpu::copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) cuda_copy(to, from, bytes, *device_stream_);
}
void TestGpu::synchronize() {
  device_stream_->synchronize();
  other_device_stream_->synchronize();
}

DeviceBytes::DeviceBytes(size_t bytes)
    : bytes_(bytes),
      block_(TestGpu::current()->allocate(static_cast<int64_t>(bytes + 2 * kDeviceGuard))) {
  const std::vector<std::byte> canaries(kDeviceGuard, kDeviceCanary);
  TestGpu& gpu = *TestGpu::current();
  gpu.copy(get() - kDeviceGuard, canaries.data(), kDeviceGuard);
  gpu.copy(get() + bytes, canaries.data(), kDeviceGuard);
#if defined(ZINC_DEVICE_MEMORY_IS_SANITIZED)
  gpu.synchronize();
  ASAN_POISON_MEMORY_REGION(get() - kDeviceGuard, kDeviceGuard);
  ASAN_POISON_MEMORY_REGION(get() + bytes, kDeviceGuard);
#endif
}

DeviceBytes::~DeviceBytes() {
  try {
    TestGpu& gpu = *TestGpu::current();
    gpu.synchronize();
#if defined(ZINC_DEVICE_MEMORY_IS_SANITIZED)
    ASAN_UNPOISON_MEMORY_REGION(get() - kDeviceGuard, bytes_ + 2 * kDeviceGuard);
#else
    std::vector<std::byte> around(2 * kDeviceGuard);
    gpu.copy(around.data(), get() - kDeviceGuard, kDeviceGuard);
    gpu.copy(around.data() + kDeviceGuard, get() + bytes_, kDeviceGuard);
    gpu.synchronize();
    if (std::any_of(around.begin(), around.end(), [](std::byte b) { return b != kDeviceCanary; })) {
      ADD_FAILURE() << "a kernel wrote outside an array of " << bytes_ << " bytes";
    }
#endif
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the GPU has failed: " << error.what();
  }
}

std::byte* DeviceBytes::get() const {
  return static_cast<std::byte*>(block_.data()) + kDeviceGuard;
}

}  // namespace zinc::test
