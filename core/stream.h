// core/stream.h: queues of work and the events that order them.
//
// A Stream is a queue on an executor. Work of one stream runs in the order in which it was issued;
// between streams only events order anything. Four executors stand behind the same interface:
//   inline    work runs at the call (CPU compute)
//   worker    a thread of its own per stream (CPU gather, reduce, copy, I/O)
//   CUDA      a CUDA stream
//   shuffled  tests: work runs as late, as early or in as random an order as the events allow
// Code must be right on all executors: the work that it enqueues captures views and values by copy,
// and memory is reused by another stream only behind an event.
//
// An exception thrown by enqueued work is kept and thrown again at every later synchronize() of the
// stream and wait of an event recorded after it; work issued to a failed stream is dropped, and a
// stream that waits for such an event fails with the same exception. On an inline stream work
// throws at the call and the stream does not fail.
//
// One thread issues to a stream and to all streams that share its executor.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace zinc {

class TraceRecorder;
struct TraceEvent;
struct WorkCost;

// A point in a stream's queue. A cheap value; a default-constructed event has already happened.
class Event {
 public:
  // The interface that an executor implements.
  class State {
   public:
    virtual ~State() = default;
    virtual bool query() = 0;  // true once the work before the event is done; makes progress
    virtual void wait() = 0;   // blocks the calling thread; rethrows what the work threw
    virtual uint64_t trace_id() const { return 0; }  // of the last work before the event; 0: none
    virtual TraceRecorder* trace() const { return nullptr; }
    // True where the work before the event runs in the thread that waits or queries.
    virtual bool is_run_by_waiter() const { return false; }
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool query() const { return state_ == nullptr || state_->query(); }
  // Blocks the calling thread. Where it really blocks and the event's stream is traced, a stall is
  // recorded on lane 0.
  void wait() const;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

enum class StreamKind : uint8_t { immediate, worker, cuda, shuffled };

class Stream {
 public:
  using Task = std::function<void()>;

  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamKind kind() const { return kind_; }
  std::string_view name() const { return name_; }
  int lane() const { return lane_; }  // row of the trace
  // True where submit() may call the work itself: an inline stream without a trace.
  bool runs_at_submit() const { return runs_at_submit_; }
  // The identity of this stream, which no later stream shares, as it may share the address. Hold it
  // weakly: it expires when the stream is gone, and the stream's issued work is done then.
  const std::shared_ptr<const void>& lifetime() const { return lifetime_; }

  // Queues `task`; blocks where the queue's limit is reached. `label` must outlive the stream (a
  // string literal); it names the work in the trace.
  virtual void enqueue(const char* label, Task task) = 0;
  virtual Event record() = 0;
  // Work issued to this stream from now on runs after `event`.
  virtual void wait(const Event& event) = 0;
  // Blocks the calling thread until all issued work is done; rethrows an exception of the work.
  virtual void synchronize() = 0;
  virtual void* native() const { return nullptr; }  // cudaStream_t; every call counts as work
  // Notes the cost of work that a meta device does not run. The streams of a context with a WorkLog
  // keep the note. `label` is a string literal.
  virtual void note(const char* label, const WorkCost& cost);

  // With a trace: the span that tasks issued from now on belong to (null: none). The tasks set the
  // span's begin, end and `waited_for` when they run; read it in a task of the stream.
  void set_trace_span(std::shared_ptr<TraceEvent> span) { trace_span_ = std::move(span); }
  const std::shared_ptr<TraceEvent>& trace_span() const { return trace_span_; }

 protected:
  Stream(StreamKind kind, std::string_view name, int lane, bool runs_at_submit = false);

 private:
  StreamKind kind_;
  bool runs_at_submit_;
  int lane_;
  std::string_view name_;
  std::shared_ptr<const void> lifetime_;
  std::shared_ptr<TraceEvent> trace_span_;
};

// Non-owning handle, the argument of every kernel launch.
class StreamRef {
 public:
  StreamRef(Stream& stream) : stream_(&stream) {}  // NOLINT(google-explicit-constructor)

  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return stream_; }
  friend bool operator==(const StreamRef&, const StreamRef&) = default;

  // Runs `work` in the stream's order; at once, and without a heap allocation, on an inline stream
  // that is not traced. CPU kernels are launched by this.
  template <class Work>
  void submit(const char* label, Work&& work) const {
    if (stream_->runs_at_submit()) {
      std::forward<Work>(work)();
    } else {
      stream_->enqueue(label, Stream::Task(std::forward<Work>(work)));
    }
  }

 private:
  Stream* stream_;
};

// Work that is issued to `later` from now on runs after all work that was issued to `earlier`.
inline void order(StreamRef earlier, StreamRef later) {
  if (later != earlier) later->wait(earlier->record());
}

}  // namespace zinc
