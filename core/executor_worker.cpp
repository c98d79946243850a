#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/executor.h"
#include "core/parallel.h"
#include "core/stall.h"
#include "core/task_trace.h"

namespace zinc {
namespace {

// Work, or a wait for an event where `task` is empty.
struct Item {
  const char* label = nullptr;
  Stream::Task task{};
  std::shared_ptr<Event::State> event{};
  uint64_t trace_id = 0;
  std::shared_ptr<TraceEvent> span{};
};

// The state that the stream, its thread and its events share. Items are numbered from 1; an item is
// completed when it ran, threw or was dropped.
class WorkerQueue {
 public:
  WorkerQueue(TraceRecorder* trace, int lane) : trace_(trace), lane_(lane) {}

  TraceRecorder* trace() const { return trace_; }

  void push(Item item) {
    {
      std::unique_lock lock(mutex_);
      while (static_cast<int>(items_.size()) >= kMaxQueuedTasks) wait_for_progress(lock);
      items_.push_back(std::move(item));
      ++issued_;
    }
    arrived_.notify_one();
  }

  // Runs in the stream's thread until stop().
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      arrived_.wait(lock, [this] { return stopping_ || !items_.empty(); });
      if (items_.empty()) return;
      Item item = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      if (!failed_) run_item(item);
      item = {};  // releases the task's captures before any waiter sees the item as done
      lock.lock();
      completed_.store(completed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      if (num_waiting_ > 0) progressed_.notify_all();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    arrived_.notify_one();
  }

  uint64_t issued() const {
    const std::lock_guard lock(mutex_);
    return issued_;
  }
  bool done(uint64_t position) const {
    return completed_.load(std::memory_order_acquire) >= position;
  }
  // Blocks until the first `position` items are completed; rethrows what one of them threw.
  void wait(uint64_t position) {
    std::exception_ptr failure;
    {
      std::unique_lock lock(mutex_);
      while (!done(position)) wait_for_progress(lock);
      if (failed_at_ <= position) failure = failure_;
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  }

 private:
  void wait_for_progress(std::unique_lock<std::mutex>& lock) {
    ++num_waiting_;
    progressed_.wait(lock);
    --num_waiting_;
  }

  void run_item(Item& item) {
    try {
      if (item.event != nullptr) {
        const uint64_t producer = wait_with_stall(*item.event, trace_, lane_);
        if (producer != 0) waited_for_ = producer;
      } else {
        const TaskTrace record(trace_, item.label, lane_, item.trace_id,
                               std::exchange(waited_for_, 0), std::move(item.span));
        item.task();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      failed_at_ = completed_.load(std::memory_order_relaxed) + 1;
      failed_ = true;
    }
  }

  TraceRecorder* const trace_;
  const int lane_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;     // for the thread: an item or stop()
  std::condition_variable progressed_;  // for everybody else: an item was completed
  std::deque<Item> items_;
  uint64_t issued_ = 0;
  std::atomic<uint64_t> completed_ = 0;  // written under the mutex
  int num_waiting_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  uint64_t failed_at_ = std::numeric_limits<uint64_t>::max();

  // Used by the stream's thread alone.
  bool failed_ = false;
  uint64_t waited_for_ = 0;  // id of the event that the last wait blocked for, until a task begins
};

class WorkerEvent final : public Event::State {
 public:
  WorkerEvent(std::shared_ptr<WorkerQueue> queue, uint64_t position, uint64_t trace_id)
      : queue_(std::move(queue)), position_(position), trace_id_(trace_id) {}

  bool query() override { return queue_->done(position_); }
  void wait() override { queue_->wait(position_); }
  uint64_t trace_id() const override { return trace_id_; }
  TraceRecorder* trace() const override { return queue_->trace(); }

 private:
  std::shared_ptr<WorkerQueue> queue_;
  uint64_t position_;
  uint64_t trace_id_;
};

class WorkerStream final : public Stream {
 public:
  WorkerStream(std::string_view name, int lane, TraceRecorder* trace, int num_threads)
      : Stream(StreamKind::worker, name, lane), queue_(std::make_shared<WorkerQueue>(trace, lane)) {
    require(num_threads >= 1, "worker stream ", name, ": needs at least one thread, not ",
            num_threads);
    try {
      thread_ = std::thread([queue = queue_, num_threads] {
        set_num_parallel_threads(num_threads);
        queue->run();
      });
    } catch (const std::system_error& error) {
      throw Error(str("worker stream ", name,
                      ": cannot start its thread: ", std::string_view(error.what())));
    }
  }

  ~WorkerStream() override {
    queue_->stop();
    thread_.join();
  }

  void enqueue(const char* label, Task task) override {
    check_caller("enqueue");
    if (queue_->trace() != nullptr) last_task_id_ = queue_->trace()->next_id();
    queue_->push(
        {.label = label, .task = std::move(task), .trace_id = last_task_id_, .span = trace_span()});
  }

  Event record() override {
    return Event(std::make_shared<WorkerEvent>(queue_, queue_->issued(), last_task_id_));
  }

  void wait(const Event& event) override {
    check_caller("wait");
    if (event.state() == nullptr) return;
    if (!event.state()->is_run_by_waiter()) return queue_->push({.event = event.state()});
    // Work that its waiter runs belongs to this thread: it runs now, and the stream gets only its
    // failure.
    try {
      event.wait();
    } catch (...) {
      enqueue("wait", [failure = std::current_exception()] { std::rethrow_exception(failure); });
    }
  }

  void synchronize() override {
    check_caller("synchronize");
    record().wait();
  }

 private:
  // Each of these calls, made by the stream's own work, could wait for itself.
  void check_caller(std::string_view what) const {
    bug_check(std::this_thread::get_id() != thread_.get_id(), "worker stream ", name(), ": ", what,
              " was called by work that runs on it");
  }

  std::shared_ptr<WorkerQueue> queue_;
  std::thread thread_;
  uint64_t last_task_id_ = 0;
};

}  // namespace

std::unique_ptr<Stream> make_worker_stream(std::string_view name, int lane, TraceRecorder* trace,
                                           int num_threads) {
  return std::make_unique<WorkerStream>(name, lane, trace, num_threads);
}

}  // namespace zinc
