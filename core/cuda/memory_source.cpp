#include "core/cuda/status.h"
#include "core/cuda_backend.h"

namespace zinc {
namespace {

// Taking memory and giving it back disturb no graph that another call of this thread is recording;
// CUDA asks to be told so.
class CaptureMayGoOn {
 public:
  CaptureMayGoOn() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureMayGoOn() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureMayGoOn(const CaptureMayGoOn&) = delete;
  CaptureMayGoOn& operator=(const CaptureMayGoOn&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaMemorySource final : public MemorySource {
 public:
  explicit CudaMemorySource(Device device) : device_(device) {}

  void* acquire(Tier tier, int64_t bytes) override {
    use_cuda_device(device_);
    const auto size = static_cast<size_t>((bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment);
    void* data = nullptr;
    const CaptureMayGoOn mode;
    const cudaError_t status = tier == Tier::device
                                   ? cudaMalloc(&data, size)
                                   : cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    cuda::check(status, str("allocating ", bytes, " bytes of the tier ", tier, " for ", device_));
    bug_check(reinterpret_cast<uintptr_t>(data) % kIoAlignment == 0,
              "CUDA's memory is not aligned");
    return data;
  }

  void release(Tier tier, void* data, int64_t) noexcept override {
    const CaptureMayGoOn mode;
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

// A graph that is launched later would find other bytes, or none.
void require_lasting(const void* data) {
  cudaPointerAttributes attributes{};
  cuda::check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered) {
    throw CudaError(
        "a copy between the GPU and pageable host memory cannot be part of a CUDA graph");
  }
}

}  // namespace

std::unique_ptr<MemorySource> make_cuda_memory_source(Device device) {
  use_cuda_device(device);
  return std::make_unique<CudaMemorySource>(device);
}

void cuda_copy(void* to, const void* from, int64_t bytes, StreamRef stream) {
  bug_check(stream->kind() == StreamKind::cuda, "a copy of the GPU on a stream that is not CUDA's");
  if (is_recording(stream)) {
    require_lasting(from);
    require_lasting(to);
  }
  cuda::check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                              static_cast<cudaStream_t>(stream->native())),
              "cudaMemcpyAsync");
}

}  // namespace zinc
