// core/cuda_backend.h: NVIDIA GPUs as devices: streams, memory, copies. No CUDA type is named here.
// core/cuda/ implements this header. A build without CUDA sees no device; a call that needs one
// throws CudaError.
//
// In a build for the emulator (ZINC_CUDA=EMULATED) the same sources run on an emulated CUDA
// runtime: tests/emulator/runtime.h.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocator.h"
#include "core/device.h"
#include "core/stream.h"

namespace zinc {

class TraceRecorder;

struct CudaDeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;  // memory of the device
  int64_t l2_bytes = 0;      // second-level cache
  int64_t clock_hz = 0;      // highest of the multiprocessors
  int64_t memory_clock_hz = 0;
  int64_t memory_bus_bits = 0;
  std::string bus_id;  // "0000:17:00.0": which GPU of the host it is
  // Bytes per second by the data sheet: two transfers per clock. 0 where the driver does not say.
  double spec_bandwidth() const {
    return 2.0 * static_cast<double>(memory_clock_hz) * static_cast<double>(memory_bus_bits) / 8;
  }
  bool has_bf16() const { return major >= 8; }
  bool has_fp8() const { return major > 8 || (major == 8 && minor >= 9); }  // products of 8 bits
};

// The GPUs that this process sees; empty where there is none, or no driver, or no CUDA in this
// build. Never throws.
std::vector<CudaDeviceInfo> cuda_devices();
// Why cuda_devices() is empty, and the cure; empty where it is not.
std::string why_no_cuda_device();

// "driver 13.0, runtime 13.0"; empty in a build without CUDA.
std::string cuda_versions();

// Makes the device that of the calling thread's CUDA calls. Throws CudaError with the reason and
// the cure where there is no such device.
void use_cuda_device(Device device);

// Makes streams of one device. Their kernels and copies run on the GPU; host tasks (enqueue) run in
// a thread of the CUDA driver and must not call CUDA. A failure belongs to the device, as in CUDA
// itself: an exception of a host task, a bad index that a kernel met (core/index_fault.h), or the
// first CUDA error. Every later synchronize() and event wait of all these streams throws it again,
// and later host tasks are dropped. wait() for an event of another executor blocks the calling
// thread. Kernels and copies are not yet lines of a trace; host tasks are.
class CudaStreams {
 public:
  virtual ~CudaStreams() = default;
  // Throws CudaError. `name` must outlive the stream, the recorder the stream and its events.
  virtual std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                              TraceRecorder* trace) = 0;
};
std::unique_ptr<CudaStreams> make_cuda_streams(Device device);
// One more stream of the device of `stream`, which is a CUDA stream; the two fail together. It is
// for host tasks that compute with `num_threads` threads. `name` and `trace` as in make_stream().
std::unique_ptr<Stream> make_stream_beside(StreamRef stream, std::string_view name, int lane,
                                           TraceRecorder* trace, int num_threads);

// Fails the device of `stream`, a stream of CUDA, from outside: every later synchronize() and event
// wait of its streams throws the exception that the call was given, unless they had failed before.
// The function may be called by any thread, also when the stream is gone.
std::function<void(std::exception_ptr)> failure_of_device(StreamRef stream);

// Device memory for Tier::device and pinned, portable host memory for Tier::pinned_host. acquire()
// throws CudaError for any failure but exhaustion.
std::unique_ptr<MemorySource> make_cuda_memory_source(Device device);

// How long a stream takes from one point of its queue to another, by the GPU's own clock.
class CudaTimer {
 public:
  virtual ~CudaTimer() = default;
  virtual void start(StreamRef stream) = 0;
  virtual void stop(StreamRef stream) = 0;
  virtual double seconds() = 0;  // waits for what was issued before stop()
};
// Throws CudaError.
std::unique_ptr<CudaTimer> make_cuda_timer(Device device);

// The C++ name of a kernel by the address of its entry, or that address where CUDA knows none.
std::string name_of_cuda_kernel(const void* entry);

// Registers and memory that a kernel takes.
struct CudaKernelUse {
  std::string name;  // mangled
  int registers = 0;
  int64_t spilled_bytes = 0;  // local memory of a thread: spills and arrays
  int64_t shared_bytes = 0;   // static shared memory of a block
};

// Recorded work that can be launched as a whole, again and again. The graph must live until its
// last launch is done, and the streams must outlive it.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  // asynchronous; the memory that the graph uses must live on
  virtual void launch(StreamRef stream) = 0;
  // The kernels of the graph that CUDA's runtime knows, in no order, each once; the emulator knows
  // none.
  virtual std::vector<CudaKernelUse> kernels() const = 0;
};
// Records the work that `body` queues on `stream`, and on other streams of the device once they
// have waited for an event of `stream`. The work does not run now. Call `body` once before, so that
// libraries have loaded what they need. Throws what `body` throws, and CudaError with the reason
// where `body` does what a launch cannot repeat: waits of the host, host tasks, copies from or to
// pageable memory. For memory that `body` takes from an allocator and gives back:
// core/kept_memory.h.
std::unique_ptr<CudaGraph> record_cuda_graph(StreamRef stream, const std::function<void()>& body);
// Whether `stream` is recording now.
bool is_recording(StreamRef stream);

// Copies between any two places of device and pinned memory, in the order of `stream`, a CUDA
// stream.
void cuda_copy(void* to, const void* from, int64_t bytes, StreamRef stream);

}  // namespace zinc
