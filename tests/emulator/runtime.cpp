#include "tests/emulator/runtime.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "tests/emulator/capture.h"
#include "tests/emulator/grid.h"
#include "tests/emulator/include/cuda_runtime_api.h"

namespace zinc::emulator {

struct RuntimeGraph {
  std::shared_ptr<const Capture> capture;
  CaptureLanes launches{capture};
};

class RuntimeStream {
 public:
  RuntimeStream(std::shared_ptr<ShuffledExecutor> executor, std::unique_ptr<Stream> lane,
                int number)
      : executor_(std::move(executor)), lane_(std::move(lane)), number_(number) {}
  ~RuntimeStream() { queue(); }

  ShuffledExecutor* executor() const { return executor_.get(); }
  int number() const { return number_; }
  // The stream's queue, with the tasks that were put off before.
  Stream* queue() {
    for (Stream::Task& task : std::exchange(put_off_, {}))
      lane_->enqueue("put off", std::move(task));
    return lane_.get();
  }
  void put_off(MakeTask make) {
    if (is_capturing()) {
      capture_->add(lane_of_capture_, "put off", std::move(make));
    } else {
      put_off_.push_back(make());
    }
  }
  // Queues the task, or keeps it where the stream captures.
  void issue(const char* label, Stream::Task task) {
    if (is_capturing()) {
      capture_->add(lane_of_capture_, label, [task = std::move(task)] { return task; });
    } else {
      queue()->enqueue(label, std::move(task));
    }
  }

  bool is_capturing() const { return capture_ != nullptr; }
  bool is_origin() const { return is_capturing() && lane_of_capture_ == 0; }
  void begin_capture() {
    capture_ = std::make_shared<Capture>();
    lane_of_capture_ = 0;
    joined_ = {this};
  }
  // Captures with `origin` until it ends.
  void join_capture(const std::shared_ptr<Capture>& capture, RuntimeStream& origin) {
    capture_ = capture;
    lane_of_capture_ = capture->join();
    origin.joined_.push_back(this);
  }
  // Called on the origin: ends the capture of all streams that joined.
  std::shared_ptr<const Capture> end_capture() {
    std::shared_ptr<const Capture> ended = capture_;
    for (RuntimeStream* stream : std::exchange(joined_, {})) stream->capture_ = nullptr;
    return ended;
  }
  const std::shared_ptr<Capture>& capture() const { return capture_; }
  size_t lane_of_capture() const { return lane_of_capture_; }

 private:
  std::shared_ptr<ShuffledExecutor> executor_;
  std::unique_ptr<Stream> lane_;
  const int number_;  // among the streams that its thread has made, from 0
  std::vector<Stream::Task> put_off_;
  std::shared_ptr<Capture> capture_;
  size_t lane_of_capture_ = 0;
  std::vector<RuntimeStream*> joined_;  // streams that joined the capture that this one has begun
};

struct RuntimeEvent {
  Event event;
  std::shared_ptr<Capture> captured;  // the capture that recorded it instead
  Capture::Mark mark;
  int stream = -1;  // number() of the one that recorded it
  // The executor of the stream that recorded the event. A thread with another executor cannot make
  // it progress, and reads `reached` instead.
  const ShuffledExecutor* executor = nullptr;
  std::shared_ptr<std::atomic<bool>> reached;
  bool has_clock = false;
  std::chrono::steady_clock::time_point when;  // the event came, on the host's clock
};

namespace {

constexpr int64_t kDefaultMemory = int64_t{4} << 30;

// The memory that the runtime knows: all else is pageable.
class Memory {
 public:
  cudaError_t take(void** data, size_t bytes, bool on_device) {
    const std::lock_guard lock(mutex_);
    const auto size = static_cast<int64_t>(bytes);
    if (on_device && used_ + size > limit_) return cudaErrorMemoryAllocation;
    constexpr size_t kAlignment = 4096;
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    *data = std::aligned_alloc(kAlignment, whole == 0 ? kAlignment : whole);
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*data, 0xff, whole);
    if (on_device) used_ += size;
    ranges_[static_cast<char*>(*data)] = {bytes, on_device};
    return cudaSuccess;
  }
  cudaError_t give(void* data, bool on_device) {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(static_cast<char*>(data));
    if (found == ranges_.end() || found->second.on_device != on_device) {
      return cudaErrorInvalidValue;
    }
    if (on_device) used_ -= static_cast<int64_t>(found->second.bytes);
    ranges_.erase(found);
    std::free(data);
    return cudaSuccess;
  }
  // All bytes are of one range that was taken here.
  bool knows(const void* data, size_t bytes) const {
    return kind_of(data, bytes) != cudaMemoryTypeUnregistered;
  }
  cudaMemoryType kind_of(const void* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto* first = static_cast<const char*>(data);
    auto next = ranges_.upper_bound(const_cast<char*>(first));
    if (next == ranges_.begin()) return cudaMemoryTypeUnregistered;
    --next;
    if (first + bytes > next->first + next->second.bytes) return cudaMemoryTypeUnregistered;
    return next->second.on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  }
  int64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  void set_limit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

 private:
  struct Range {
    size_t bytes = 0;
    bool on_device = false;
  };
  mutable std::mutex mutex_;
  std::map<char*, Range> ranges_;
  int64_t used_ = 0;
  int64_t limit_ = kDefaultMemory;
};

Memory& memory() {
  static Memory all;
  return all;
}

std::atomic<int64_t> device_synchronizations{0};
std::atomic<int64_t> host_waits{0};
std::atomic<int64_t> memory_calls{0};
std::atomic<int> num_devices{1};
std::atomic<int> compute_capability{9};
std::atomic<uint64_t> default_seed{0};
std::atomic<ShuffledExecutor::Order> default_order{ShuffledExecutor::Order::by_seed};
std::atomic<bool> ignores_stream_waits{false};
std::atomic<int> ignores_waits_for{-1};
thread_local std::shared_ptr<ShuffledExecutor> thread_executor;
thread_local int thread_device = 0;
thread_local int thread_streams = 0;   // made so far
thread_local int thread_captures = 0;  // under way, of streams of this thread
thread_local std::map<const Capture*, RuntimeStream*> origins;  // of captures under way
thread_local cudaStreamCaptureMode thread_capture_mode = cudaStreamCaptureModeGlobal;

ShuffledExecutor& executor_of_thread() {
  if (thread_executor == nullptr) {
    thread_executor = std::make_shared<ShuffledExecutor>(default_seed, default_order);
  }
  return *thread_executor;
}

// Work of the emulated device never fails: what a kernel or a host task throws is kept by the
// stream class that issued it.
template <class Call>
cudaError_t without_failure(Call&& call) {
  try {
    call();
  } catch (...) {
    return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

// Calls that CUDA calls unsafe, as they may wait for work that only a launch would do.
bool breaks_capture() {
  return thread_captures > 0 && thread_capture_mode != cudaStreamCaptureModeRelaxed;
}

// Whether a test leaves out waits for the event on purpose.
bool is_ignored(const RuntimeEvent& event) {
  return ignores_stream_waits || (event.stream >= 0 && event.stream == ignores_waits_for);
}

bool is_device(int device) { return device >= 0 && device < num_devices; }

cudaError_t synchronize_device() {
  ++device_synchronizations;
  return without_failure([] { executor_of_thread().drain(); });
}

}  // namespace

void set_runtime_seed(uint64_t seed) {
  if (thread_executor != nullptr) thread_executor->drain();
  thread_executor = std::make_shared<ShuffledExecutor>(seed);
}
void set_default_schedule(uint64_t seed, ShuffledExecutor::Order order) {
  default_seed = seed;
  default_order = order;
}
bool is_capturing(const RuntimeStream* stream) { return stream->is_capturing(); }
void put_off(RuntimeStream* stream, MakeTask make) { stream->put_off(std::move(make)); }
void set_ignores_stream_waits(bool ignores) { ignores_stream_waits = ignores; }
void set_ignores_waits_for(int number) { ignores_waits_for = number; }
int64_t num_device_synchronizations() { return device_synchronizations; }
int64_t num_host_waits() { return host_waits; }
int64_t num_memory_calls() { return memory_calls; }
void set_device_memory_bytes(int64_t bytes) { memory().set_limit(bytes); }
int64_t device_memory_bytes() { return memory().used(); }
void set_compute_capability(int major) { compute_capability = major; }
void set_num_devices(int count) { num_devices = count; }

}  // namespace zinc::emulator

using namespace zinc::emulator;  // NOLINT: this file is the other side of a C interface

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "the driver is too old for the runtime";
    case cudaErrorNoDevice:
      return "no device is found";
    case cudaErrorInvalidDevice:
      return "invalid device number";
    case cudaErrorInvalidResourceHandle:
      return "invalid handle";
    case cudaErrorNotReady:
      return "not ready";
    case cudaErrorIllegalState:
      return "the stream captures already, or does not";
    case cudaErrorLaunchFailure:
      return "a kernel failed";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

constexpr int kCudaVersion = 13000;
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices;
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  thread_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = thread_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  std::strcpy(properties->name, "emulated GPU");
  properties->totalGlobalMem = static_cast<size_t>(kDefaultMemory);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  constexpr int kMultiprocessors = 4;
  *value = attribute == cudaDevAttrMultiProcessorCount      ? kMultiprocessors
           : attribute == cudaDevAttrComputeCapabilityMajor ? compute_capability.load()
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
               ? static_cast<int>(kMaxSharedBytes)
               : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return breaks_capture() ? cudaErrorStreamCaptureUnsupported : synchronize_device();
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  ++memory_calls;
  return breaks_capture() ? cudaErrorStreamCaptureUnsupported : memory().take(data, bytes, true);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ++memory_calls;
  return breaks_capture() ? cudaErrorStreamCaptureUnsupported : memory().take(data, bytes, false);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  attributes->type = memory().kind_of(data, 1);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  ++memory_calls;
  if (breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  if (data == nullptr) return cudaSuccess;
  synchronize_device();
  return memory().give(data, true);
}
cudaError_t cudaFreeHost(void* data) {
  ++memory_calls;
  if (breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  if (data == nullptr) return cudaSuccess;
  synchronize_device();
  return memory().give(data, false);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  // CUDA captures the address of pageable memory, and every launch reads what is there then.
  if (stream->is_capturing() && !(memory().knows(from, bytes) && memory().knows(to, bytes))) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (!memory().knows(from, bytes)) {
    const auto* first = static_cast<const char*>(from);
    stream->queue()->enqueue("copy", [to, staged = std::vector<char>(first, first + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  } else {
    stream->issue("copy", [=] { std::memcpy(to, from, bytes); });
  }
  return memory().knows(to, bytes) ? cudaSuccess : cudaStreamSynchronize(stream);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (!memory().knows(data, bytes)) return cudaErrorInvalidValue;
  stream->issue("set", [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  std::unique_ptr<zinc::Stream> lane = executor_of_thread().make_stream("cuda", 0, nullptr);
  *stream =
      std::make_unique<RuntimeStream>(thread_executor, std::move(lane), thread_streams++).release();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->is_capturing()) return cudaErrorStreamCaptureUnsupported;
  ++host_waits;
  return without_failure([&] { stream->queue()->synchronize(); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->captured == nullptr) {
    if (stream->is_capturing()) return cudaErrorStreamCaptureIsolation;
    if (!is_ignored(*event)) stream->queue()->wait(event->event);
    return cudaSuccess;
  }
  const auto origin = origins.find(event->captured.get());
  if (origin == origins.end()) return cudaErrorCapturedEvent;  // of a capture that has ended
  if (!stream->is_capturing()) stream->join_capture(event->captured, *origin->second);
  if (event->captured != stream->capture()) return cudaErrorStreamCaptureIsolation;
  event->captured->wait(stream->lane_of_capture(), event->mark, !is_ignored(*event));
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream->issue("host function", [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new RuntimeEvent();
  (*event)->has_clock = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->captured = stream->capture();
  event->stream = stream->number();
  if (stream->is_capturing()) {
    event->mark = event->captured->record(stream->lane_of_capture());
    return cudaSuccess;
  }
  if (event->has_clock) {
    stream->queue()->enqueue("clock", [event] { event->when = std::chrono::steady_clock::now(); });
  }
  event->executor = stream->executor();
  event->reached = std::make_shared<std::atomic<bool>>(false);
  stream->queue()->enqueue("event", [reached = event->reached] { *reached = true; });
  event->event = stream->queue()->record();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured != nullptr) return cudaErrorCapturedEvent;
  if (breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  if (event->executor != nullptr && event->executor != thread_executor.get()) {
    return *event->reached ? cudaSuccess : cudaErrorNotReady;
  }
  return event->event.query() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured != nullptr) return cudaErrorCapturedEvent;
  if (breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  ++host_waits;
  return without_failure([&] { event->event.wait(); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->has_clock || !end->has_clock) return cudaErrorInvalidResourceHandle;
  if (!begin->event.query() || !end->event.query()) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream->is_capturing() || mode != cudaStreamCaptureModeThreadLocal) {
    return cudaErrorIllegalState;
  }
  stream->begin_capture();
  origins[stream->capture().get()] = stream;
  ++thread_captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->is_capturing()) return cudaErrorIllegalState;
  if (!stream->is_origin()) return cudaErrorStreamCaptureUnmatched;
  --thread_captures;
  const std::shared_ptr<const Capture> ended = stream->end_capture();
  origins.erase(ended.get());
  if (!ended->is_joined()) return cudaErrorStreamCaptureUnjoined;
  *graph = new RuntimeGraph{.capture = ended};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new RuntimeGraph{.capture = graph->capture};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (stream->is_capturing()) return cudaErrorStreamCaptureUnsupported;
  graph->launches.launch(*stream->executor(), *stream->queue());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
