// core/executor.h: makers of streams.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/stream.h"

namespace zinc {

class TraceRecorder;
class WorkLog;

// Limit of every worker queue: an issuing thread that is this far ahead blocks.
inline constexpr int kMaxQueuedTasks = 4096;

// In a trace every task is an event of kind compute on the stream's lane, a wait that blocked one
// of kind stall: on the lane of the stream that waited, on lane 0 where the host did. `name` must
// outlive the stream, and the recorder the stream and its events.

// Runs work at the call, in the calling thread; a wait for an event blocks the caller. With a trace
// submit() costs a heap allocation and two locks.
std::unique_ptr<Stream> make_inline_stream(std::string_view name, int lane, TraceRecorder* trace);

// Runs work in a thread of the stream's own, with `num_threads` threads in its parallel loops. The
// destructor lets issued work finish.
std::unique_ptr<Stream> make_worker_stream(std::string_view name, int lane, TraceRecorder* trace,
                                           int num_threads);

// For a meta device: runs submitted work at the call, and writes notes to `log`, which must outlive
// the stream and its events, as stream `index`. All events have happened; a wait for one is written
// to the log, too.
std::unique_ptr<Stream> make_logged_stream(std::string_view name, int lane, int index,
                                           WorkLog& log);

// Test executor: a dependency graph of everything that was issued to its streams; the calling
// thread runs it. The seed makes a run mix three orders: latest (only when a wait or query needs
// the work), earliest (at issue), and random. The order depends on the seed and the sequence of
// calls alone, so that ranks which issue the same sequence of collectives run them in the same
// order.
//
// A missing wait shows as a wrong value, since work that nothing waits for runs at any time after
// its issue. A stream's queue holds kMaxQueuedTasks; issuing more runs its oldest work. Streams
// keep the graph alive; the destructor runs what is left and drops what that throws.
class ShuffledExecutor {
 public:
  enum class Order : uint8_t { by_seed, latest, earliest, random };

  explicit ShuffledExecutor(uint64_t seed, Order order = Order::by_seed);
  ~ShuffledExecutor();
  ShuffledExecutor(const ShuffledExecutor&) = delete;
  ShuffledExecutor& operator=(const ShuffledExecutor&) = delete;

  std::unique_ptr<Stream> make_stream(std::string_view name, int lane, TraceRecorder* trace);
  void drain();  // runs everything that was issued

  class Graph;

 private:
  std::shared_ptr<Graph> graph_;
};

}  // namespace zinc
