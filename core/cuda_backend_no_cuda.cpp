#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc {
namespace {

constexpr auto kNoCuda = "this build has no CUDA: configure with -DZINC_CUDA=ON, or use device cpu";

}  // namespace

std::vector<CudaDeviceInfo> cuda_devices() { return {}; }
std::string why_no_cuda_device() { return kNoCuda; }
std::string cuda_versions() { return ""; }
void use_cuda_device(Device) { throw CudaError(kNoCuda); }
std::unique_ptr<CudaStreams> make_cuda_streams(Device) { throw CudaError(kNoCuda); }
std::unique_ptr<Stream> make_stream_beside(StreamRef, std::string_view, int, TraceRecorder*, int) {
  throw CudaError(kNoCuda);
}
std::unique_ptr<MemorySource> make_cuda_memory_source(Device) { throw CudaError(kNoCuda); }
std::unique_ptr<CudaTimer> make_cuda_timer(Device) { throw CudaError(kNoCuda); }
std::string name_of_cuda_kernel(const void*) { throw CudaError(kNoCuda); }
std::function<void(std::exception_ptr)> failure_of_device(StreamRef) { throw CudaError(kNoCuda); }
std::unique_ptr<CudaGraph> record_cuda_graph(StreamRef, const std::function<void()>&) {
  throw CudaError(kNoCuda);
}
bool is_recording(StreamRef) { return false; }
void cuda_copy(void*, const void*, int64_t, StreamRef) { throw CudaError(kNoCuda); }

}  // namespace zinc
