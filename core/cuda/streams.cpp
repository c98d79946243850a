#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "core/cuda/recording.h"
#include "core/cuda/status.h"
#include "core/cuda_backend.h"
#include "core/index_fault.h"
#include "core/parallel.h"
#include "core/stall.h"
#include "core/task_trace.h"

namespace zinc {
namespace {

// The state that all streams of a device share; events and host tasks hold it after the streams are
// gone.
class Shared {
 public:
  explicit Shared(Device device) : device_(device) {
    use_cuda_device(device);
    void* place = nullptr;
    cuda::check(cudaHostAlloc(&place, sizeof(IndexFault), cudaHostAllocPortable), "cudaHostAlloc");
    index_fault_ = new (place) IndexFault();
  }
  ~Shared() {
    for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
    cudaFreeHost(index_fault_);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  Device device() const { return device_; }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
  }
  bool has_failed() const {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }
  IndexFault* index_fault() const { return index_fault_; }
  // Throws the first failure, that of `status` and what kernels recorded among them.
  void check(cudaError_t status, std::string_view what) {
    try {
      cuda::check(status, what);
      check_indices();
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  cudaEvent_t take_event() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_events_.empty()) {
        const cudaEvent_t event = free_events_.back();
        free_events_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return event;
  }
  void give_event(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    free_events_.push_back(event);
  }

 private:
  void check_indices() const {
    const IndexFault& fault = *index_fault_;
    const std::atomic_ref<uint32_t> state(index_fault_->state);
    if (state.load(std::memory_order_acquire) != IndexFault::kComplete) return;
    require(false, fault.op, ": ", fault.name, "[", fault.place, "] is ", fault.index,
            ", outside [0, ", fault.rows, ")");
  }

  const Device device_;
  IndexFault* index_fault_ = nullptr;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<cudaEvent_t> free_events_;
};

class CudaStream;
class CudaEvent;

// See Note [Streams of a recording].
struct Recording {
  CudaStream* origin = nullptr;
  std::vector<CudaStream*> others{};
  std::shared_ptr<CudaEvent> end{};
  bool is_over = false;
  // events from outside that the recording waits for
  std::vector<std::shared_ptr<CudaEvent>> awaited{};
  std::vector<std::shared_ptr<void>> tasks{};
};

class CudaEvent final : public Event::State {
 public:
  // `recording`: the recording that has the event; null: none.
  CudaEvent(std::shared_ptr<Shared> shared, TraceRecorder* trace, uint64_t trace_id,
            std::shared_ptr<const Recording> recording)
      : shared_(std::move(shared)),
        event_(shared_->take_event()),
        trace_(trace),
        trace_id_(trace_id),
        recording_(std::move(recording)) {}
  ~CudaEvent() override { shared_->give_event(event_); }

  void record(cudaStream_t stream) {
    cuda::check(cudaEventRecord(event_, stream), "cudaEventRecord");
    is_recorded_ = recording_ == nullptr;
  }
  const std::shared_ptr<const Recording>& recording() const { return recording_; }
  // Throws CudaError for work that is being recorded: it may never run, so nothing can wait for it.
  void require_recorded() const {
    if (!is_recorded_) {
      throw CudaError("work that is being recorded cannot be waited for: it has not run");
    }
  }

  bool query() override {
    if (recording_ != nullptr) return recording_->end->query();
    if (!is_recorded_) return false;
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    if (status != cudaSuccess) {
      cudaGetLastError();
      shared_->fail(std::make_exception_ptr(
          CudaError(str(shared_->device(), ": ", cudaGetErrorString(status)))));
    }
    return true;
  }
  void wait() override {
    if (recording_ != nullptr) return recording_->end->wait();
    require_recorded();
    shared_->check(cudaEventSynchronize(event_), "waiting for the GPU");
  }
  uint64_t trace_id() const override { return trace_id_; }
  TraceRecorder* trace() const override { return trace_; }

  cudaEvent_t native() const { return event_; }

 private:
  std::shared_ptr<Shared> shared_;
  cudaEvent_t event_;
  std::atomic<bool> is_recorded_ = false;
  TraceRecorder* trace_;
  uint64_t trace_id_;
  std::shared_ptr<const Recording> recording_;
};

// A task on its way through the driver.
struct HostTask {
  std::shared_ptr<Shared> shared;
  Stream::Task task;
  const char* label;
  TraceRecorder* trace;
  int lane;
  uint64_t trace_id;
  std::shared_ptr<TraceEvent> span;
  int num_threads;  // threads of parallel loops; 0: those of the thread that runs the task
};

// Each thread has a number of threads for its parallel loops, and CUDA promises no one thread to
// the tasks of a stream: every task brings its own number.
class ThreadsOfTask {
 public:
  explicit ThreadsOfTask(int num_threads) : before_(num_parallel_threads()) {
    if (num_threads > 0) set_num_parallel_threads(num_threads);
  }
  ~ThreadsOfTask() { set_num_parallel_threads(before_); }
  ThreadsOfTask(const ThreadsOfTask&) = delete;
  ThreadsOfTask& operator=(const ThreadsOfTask&) = delete;

 private:
  const int before_;
};

void run_task(const HostTask& call) {
  if (call.shared->has_failed()) return;
  const ThreadsOfTask threads(call.num_threads);
  try {
    const TaskTrace record(call.trace, call.label, call.lane, call.trace_id, 0, call.span);
    call.task();
  } catch (...) {
    call.shared->fail(std::current_exception());
  }
}

void run_host_task(void* data) {
  const std::unique_ptr<HostTask> call(static_cast<HostTask*>(data));
  run_task(*call);
}

#if defined(ZINC_CUDA_EMULATED)
// The label of kernels/cuda/launch.h: the emulator's kernels are host tasks.
constexpr std::string_view kKernel = "cuda kernel";
// Runs a host task of a graph, which keeps the task.
void run_recorded_task(void* data) { run_task(*static_cast<const HostTask*>(data)); }
#endif

class CudaStream final : public Stream {
 public:
  // `num_threads`: of the parallel loops in host tasks; 0: those of the thread that runs the task.
  CudaStream(std::shared_ptr<Shared> shared, std::string_view name, int lane, TraceRecorder* trace,
             int num_threads = 0)
      : Stream(StreamKind::cuda, name, lane),
        shared_(std::move(shared)),
        trace_(trace),
        num_threads_(num_threads) {
    use_cuda_device(shared_->device());
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  void enqueue(const char* label, Task task) override {
    if (trace_ != nullptr) last_trace_id_ = trace_->next_id();
    auto call = std::make_unique<HostTask>(HostTask{.shared = shared_,
                                                    .task = std::move(task),
                                                    .label = label,
                                                    .trace = trace_,
                                                    .lane = lane(),
                                                    .trace_id = last_trace_id_,
                                                    .span = trace_span(),
                                                    .num_threads = num_threads_});
    has_new_work_ = true;
    if (is_recording()) return record_task(std::move(call));
    cuda::check(cudaLaunchHostFunc(stream_, run_host_task, call.get()), label);
    call.release();  // run_host_task owns it now
  }

  // Events without work between them are one: the allocator asks for one at every free.
  Event record() override {
    if (has_new_work_ || last_event_ == nullptr || last_event_->recording() != recording_) {
      auto event = std::make_shared<CudaEvent>(shared_, trace_, last_trace_id_, recording_);
      event->record(stream_);
      last_event_ = std::move(event);
      has_new_work_ = false;
    }
    return Event(last_event_);
  }

  void wait(const Event& event) override {
    if (event.state() == nullptr) return;
    if (const auto own = std::dynamic_pointer_cast<CudaEvent>(event.state())) {
      return wait_for(own);
    }
    try {
      wait_with_stall(*event.state(), trace_, lane());
    } catch (...) {
      shared_->fail(std::current_exception());
    }
  }

  void synchronize() override {
    if (is_recording()) {
      throw CudaError(
          str("stream ", name(), " records a CUDA graph: the host cannot wait for it meanwhile"));
    }
    shared_->check(cudaStreamSynchronize(stream_), str("stream ", name()));
  }

  // See core/cuda/recording.h.
  bool is_recording() const { return recording_ != nullptr; }
  void begin_recording() {
    bug_check(!is_recording(), "a stream that records already");
    auto recording = std::make_shared<Recording>(
        Recording{.origin = this,
                  .end = std::make_shared<CudaEvent>(shared_, trace_, last_trace_id_, nullptr)});
    cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                "cudaStreamBeginCapture");
    recording_ = std::move(recording);
  }
  cuda::Recorded end_recording() {
    const std::shared_ptr<Recording> recording = recording_;
    const std::exception_ptr unjoined = join_others();
    cuda::Recorded made{.tasks = std::move(recording->tasks)};
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    const auto destroy = [](cudaGraph_t of) { cudaGraphDestroy(of); };
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(destroy)> owned(graph, destroy);
    recording->is_over = true;
    recording_ = nullptr;
    for (CudaStream* other : recording->others) {
      other->recording_ = nullptr;
      made.others.push_back(other);
    }
    for (const auto& event : std::exchange(recording->awaited, {})) wait_for(event);
    recording->end->record(stream_);
    cuda::check(status, "cudaStreamEndCapture");
    if (unjoined != nullptr) std::rethrow_exception(unjoined);
    made.graph = owned.release();
    return made;
  }

  void* native() const override {
    has_new_work_ = true;
    return stream_;
  }
  IndexFault* index_fault() const { return shared_->index_fault(); }
  const std::shared_ptr<Shared>& shared() const { return shared_; }

 private:
  void wait_for(const std::shared_ptr<CudaEvent>& event) {
    if (const auto& of = event->recording(); of != nullptr) {
      if (of->is_over) return wait_for(of->end);
      bug_check(!is_recording() || recording_ == of, "a wait for another recording");
      if (!is_recording()) join(of->origin->recording_);
    } else {
      event->require_recorded();
      if (is_recording()) {
        recording_->awaited.push_back(event);
        return;
      }
    }
    has_new_work_ = true;
    cuda::check(cudaStreamWaitEvent(stream_, event->native(), 0), "cudaStreamWaitEvent");
  }

  void join(const std::shared_ptr<Recording>& recording) {
    recording->others.push_back(this);
    recording_ = recording;
  }
  // Returns the exception if a stream could not join; null: all did.
  std::exception_ptr join_others() noexcept {
    try {
      for (CudaStream* other : recording_->others) wait(other->record());
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void record_task(std::unique_ptr<HostTask> call) {
#if defined(ZINC_CUDA_EMULATED)
    if (call->label == kKernel) {
      cuda::check(cudaLaunchHostFunc(stream_, run_recorded_task, call.get()), call->label);
      recording_->tasks.emplace_back(std::move(call));
      return;
    }
#endif
    throw CudaError(str(call->label, ": a task of the host cannot be part of a CUDA graph"));
  }

  std::shared_ptr<Shared> shared_;
  TraceRecorder* trace_;
  const int num_threads_;
  cudaStream_t stream_ = nullptr;
  uint64_t last_trace_id_ = 0;
  std::shared_ptr<Recording> recording_;  // under way
  mutable bool has_new_work_ = true;      // since last_event_ was recorded
  std::shared_ptr<CudaEvent> last_event_;
};

class StreamsOfDevice final : public CudaStreams {
 public:
  explicit StreamsOfDevice(Device device) : shared_(std::make_shared<Shared>(device)) {}
  std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                      TraceRecorder* trace) override {
    return std::make_unique<CudaStream>(shared_, name, lane, trace);
  }

 private:
  std::shared_ptr<Shared> shared_;
};

// Events with a clock; those that order streams have none.
class TimerOfEvents final : public CudaTimer {
 public:
  explicit TimerOfEvents(Device device) {
    use_cuda_device(device);
    cuda::check(cudaEventCreateWithFlags(&begin_, cudaEventDefault), "cudaEventCreate");
    cuda::check(cudaEventCreateWithFlags(&end_, cudaEventDefault), "cudaEventCreate");
  }
  ~TimerOfEvents() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void start(StreamRef stream) override { record(begin_, stream); }
  void stop(StreamRef stream) override { record(end_, stream); }
  double seconds() override {
    cuda::check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0.0f;
    cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  static void record(cudaEvent_t event, StreamRef stream) {
    cuda::check(cudaEventRecord(event, static_cast<cudaStream_t>(stream->native())),
                "cudaEventRecord");
  }
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

namespace cuda {
namespace {

CudaStream& own(StreamRef stream) {
  auto* const found = dynamic_cast<CudaStream*>(&*stream);
  bug_check(found != nullptr, "a graph of a stream that is not CUDA's");
  return *found;
}

}  // namespace

Recorded record(StreamRef stream, const std::function<void()>& body) {
  CudaStream& recording = own(stream);
  recording.begin_recording();
  try {
    body();
  } catch (...) {
    try {
      const Recorded lost = recording.end_recording();
      cudaGraphDestroy(lost.graph);
    } catch (const CudaError&) {
      // A broken recording has no graph; what broke it is thrown on.
    }
    throw;
  }
  return recording.end_recording();
}

}  // namespace cuda

bool is_recording(StreamRef stream) {
  const auto* found = dynamic_cast<const CudaStream*>(&*stream);
  return found != nullptr && found->is_recording();
}

IndexFault* index_fault_of(StreamRef stream) {
  const auto* own = dynamic_cast<const CudaStream*>(&*stream);
  return own == nullptr ? nullptr : own->index_fault();
}

std::function<void(std::exception_ptr)> failure_of_device(StreamRef stream) {
  const auto* own = dynamic_cast<const CudaStream*>(&*stream);
  bug_check(own != nullptr, "failure_of_device: not a stream of CUDA");
  return [shared = own->shared()](std::exception_ptr why) { shared->fail(std::move(why)); };
}

std::unique_ptr<Stream> make_stream_beside(StreamRef stream, std::string_view name, int lane,
                                           TraceRecorder* trace, int num_threads) {
  const auto* own = dynamic_cast<const CudaStream*>(&*stream);
  bug_check(own != nullptr, "make_stream_beside: not a stream of CUDA");
  return std::make_unique<CudaStream>(own->shared(), name, lane, trace, num_threads);
}

std::unique_ptr<CudaTimer> make_cuda_timer(Device device) {
  return std::make_unique<TimerOfEvents>(device);
}

std::unique_ptr<CudaStreams> make_cuda_streams(Device device) {
  return std::make_unique<StreamsOfDevice>(device);
}

}  // namespace zinc
