#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/trace.h"

namespace zinc {
namespace {

using std::chrono::milliseconds;

TEST(WorkerStream, Task_RunsInAnotherThreadWithTheGivenThreadCount) {
  const auto s = make_worker_stream("gather", 1, nullptr, 3);
  std::thread::id thread;
  int num_threads = 0;
  s->enqueue("look", [&] {
    thread = std::this_thread::get_id();
    num_threads = omp_get_max_threads();
  });
  s->synchronize();
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(num_threads, 3);
}

TEST(WorkerStream, Make_WithoutThreads_Throws) {
  EXPECT_THROW(make_worker_stream("gather", 1, nullptr, 0), InvalidArgument);
}

TEST(WorkerStream, Enqueue_ReturnsBeforeTheTaskRuns) {
  const auto s = make_worker_stream("gather", 1, nullptr, 1);
  std::promise<void> gate;
  s->enqueue("wait", [opened = gate.get_future().share()] { opened.wait(); });
  const Event event = s->record();
  EXPECT_FALSE(event.query());
  gate.set_value();
  event.wait();
  EXPECT_TRUE(event.query());
}

// The queue holds kMaxQueuedTasks and the thread one more.
TEST(WorkerStream, Enqueue_OnAFullQueue_BlocksUntilATaskIsTaken) {
  const auto s = make_worker_stream("gather", 1, nullptr, 1);
  std::promise<void> gate;
  std::promise<void> begun;
  s->enqueue("wait", [&, opened = gate.get_future().share()] {
    begun.set_value();
    opened.wait();
  });
  begun.get_future().wait();
  std::atomic<int> issued = 0;
  std::atomic<int> ran = 0;
  std::thread issuer([&] {
    for (int i = 0; i < kMaxQueuedTasks + 1; ++i) {
      s->enqueue("count", [&] { ++ran; });
      ++issued;
    }
  });
  while (issued < kMaxQueuedTasks) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));  // time for a queue without a limit to take more
  EXPECT_EQ(issued, kMaxQueuedTasks);
  gate.set_value();
  issuer.join();
  s->synchronize();
  EXPECT_EQ(ran, kMaxQueuedTasks + 1);
}

TEST(WorkerStream, Enqueue_OnAFullFailedQueue_DoesNotHang) {
  const auto s = make_worker_stream("gather", 1, nullptr, 1);
  s->enqueue("throw", [] {
    std::this_thread::sleep_for(milliseconds(20));
    throw DataError("bad shard");
  });
  for (int i = 0; i < 3 * kMaxQueuedTasks; ++i) s->enqueue("dropped", [] {});
  EXPECT_THROW(s->synchronize(), DataError);
}

TEST(WorkerStream, Synchronize_FromItsOwnWork_ThrowsInsteadOfHanging) {
  const auto s = make_worker_stream("gather", 1, nullptr, 1);
  s->enqueue("synchronize", [&] { s->synchronize(); });
  EXPECT_THROW(s->synchronize(), InternalError);
}

TEST(WorkerStream, Failure_OfTheEventItWaitsFor_ArrivesUnchanged) {
  const auto a = make_worker_stream("a", 1, nullptr, 1);
  const auto b = make_worker_stream("b", 2, nullptr, 1);
  a->enqueue("throw", [] { throw IoError("read", "/data/shard.bin", 512, 5); });
  b->wait(a->record());
  try {
    b->synchronize();
    FAIL() << "the failure was lost";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), "/data/shard.bin");
    EXPECT_EQ(error.offset(), 512);
  }
}

TEST(WorkerStream, Wait_ForWorkOfTheShuffledExecutor_RunsItInTheIssuingThread) {
  ShuffledExecutor executor(3, ShuffledExecutor::Order::latest);
  const auto shuffled = executor.make_stream("compute", 1, nullptr);
  const auto worker = make_worker_stream("gather", 2, nullptr, 1);
  std::thread::id thread;
  shuffled->enqueue("look", [&] { thread = std::this_thread::get_id(); });
  bool after = false;
  worker->wait(shuffled->record());
  worker->enqueue("use", [&] { after = thread != std::thread::id(); });
  worker->synchronize();
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_TRUE(after);

  shuffled->enqueue("throw", [] { throw DataError("bad"); });
  worker->wait(shuffled->record());
  EXPECT_THROW(worker->synchronize(), DataError);
}

TEST(WorkerStream, Trace_StallOfAStream_NamesLaneAndProducer) {
  TraceRecorder trace;
  const auto gather = make_worker_stream("gather", 2, &trace, 1);
  const auto copy = make_worker_stream("copy", 4, &trace, 1);
  gather->enqueue("first", [] {});
  gather->enqueue("slow", [] { std::this_thread::sleep_for(milliseconds(30)); });
  copy->wait(gather->record());
  copy->enqueue("use", [] {});
  copy->enqueue("next", [] {});
  copy->synchronize();  // the host stalls for "next", for "slow" is not over

  uint64_t slow = 0;
  uint64_t next = 0;
  for (const TraceEvent& event : trace.events()) {
    if (event.name == "slow") slow = event.id;
    if (event.name == "next") next = event.id;
  }
  ASSERT_NE(slow, 0u);
  int stream_stalls = 0;
  int host_stalls = 0;
  for (const TraceEvent& event : trace.events()) {
    if (event.kind == TraceKind::stall && event.lane == 4) {
      ++stream_stalls;
      EXPECT_EQ(event.waited_for, slow);
    }
    if (event.kind == TraceKind::stall && event.lane == 0) {
      ++host_stalls;
      EXPECT_EQ(event.waited_for, next);
    }
    if (event.name == "use") {
      EXPECT_EQ(event.waited_for, slow);
    }
    if (event.name == "next") {
      EXPECT_EQ(event.waited_for, 0u);
    }
  }
  EXPECT_EQ(stream_stalls, 1);
  EXPECT_EQ(host_stalls, 1);
}

// Two workers in lockstep, a host that polls and waits, and a trace: the food of the thread
// sanitizer.
TEST(WorkerStream, ManyStreamsAndEvents_PassValuesOnWithoutARace) {
  TraceRecorder trace(1 << 12);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(make_worker_stream("s", i + 1, &trace, 1));
  int64_t value = 0;  // plain: only the events order its uses
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < streams.size(); ++i) {
      streams[i]->enqueue("add", [&value] { ++value; });
      const Event event = streams[i]->record();
      streams[(i + 1) % streams.size()]->wait(event);
      if (round % 100 == 0) event.wait();
      if (round % 100 == 50) {
        while (!event.query()) std::this_thread::yield();
      }
    }
  }
  streams[0]->synchronize();
  EXPECT_EQ(value, kRounds * 4);
}

}  // namespace
}  // namespace zinc
