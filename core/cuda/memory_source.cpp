#include "core/cuda/status.h"
#include "core/cuda_backend.h"

namespace zinc {
namespace {

class CudaMemorySource final : public MemorySource {
 public:
  explicit CudaMemorySource(Device device) : device_(device) {}

  void* acquire(Tier tier, int64_t bytes) override {
    use_cuda_device(device_);
    const auto size = static_cast<size_t>((bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment);
    void* data = nullptr;
    const cudaError_t status = tier == Tier::device
                                   ? cudaMalloc(&data, size)
                                   : cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    cuda::check(status,
                concat("allocating ", bytes, " bytes of the tier ", tier, " for ", device_));
    bug_check(reinterpret_cast<uintptr_t>(data) % kIoAlignment == 0,
              "CUDA's memory is not aligned");
    return data;
  }

  void release(Tier tier, void* data, int64_t) noexcept override {
    if (tier == Tier::device) {
      cudaFree(data);
    } else {
      cudaFreeHost(data);
    }
  }

  void poison(Tier, void* data, int64_t bytes, StreamRef stream) override {
    cuda::check(cudaMemsetAsync(data, 0xff, static_cast<size_t>(bytes),
                                static_cast<cudaStream_t>(stream->native())),
                "cudaMemsetAsync");
  }

 private:
  Device device_;
};

}  // namespace

std::unique_ptr<MemorySource> make_cuda_memory_source(Device device) {
  use_cuda_device(device);
  return std::make_unique<CudaMemorySource>(device);
}

void cuda_copy(void* to, const void* from, int64_t bytes, StreamRef stream) {
  bug_check(stream->kind() == StreamKind::cuda, "a copy of the GPU on a stream that is not CUDA's");
  cuda::check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                              static_cast<cudaStream_t>(stream->native())),
              "cudaMemcpyAsync");
}

}  // namespace zinc
