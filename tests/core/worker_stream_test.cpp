#include <gtest/gtest.h>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/parallel.h"
#include "core/trace.h"
#include "tests/core/blocked_event.h"

namespace zinc {
namespace worker_stream_test {

using std::chrono::milliseconds;

TEST(WorkerStream, Task_RunsInAnotherThreadWithTheGivenThreadCount) {
  const auto s = make_worker_stream("gather", 1, nullptr, 3);
  std::thread::id thread;
  int num_threads = 0;
  s->enqueue("look", [&] {
    thread = std::this_thread::get_id();
    num_threads = num_parallel_threads();
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
  const auto copy = make_worker_stream("copy", 4, &trace, 1);
  copy->wait(Event(std::make_shared<BlockedEvent>(77)));
  copy->enqueue("use", [] {});
  copy->enqueue("next", [] {});
  while (!copy->record().query()) std::this_thread::yield();
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, TraceKind::stall);
  EXPECT_EQ(events[0].lane, 4);
  EXPECT_EQ(events[0].waited_for, 77u);
  EXPECT_EQ(events[1].name, "use");
  EXPECT_EQ(events[1].waited_for, 77u);
  EXPECT_EQ(events[2].waited_for, 0u);
}

TEST(WorkerStream, Trace_StallOfTheHost_IsOnLaneZero) {
  TraceRecorder trace;
  Event(std::make_shared<BlockedEvent>(77, &trace)).wait();
  // An event of a stream without a trace.
  Event(std::make_shared<BlockedEvent>(78, nullptr)).wait();
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, TraceKind::stall);
  EXPECT_EQ(events[0].lane, 0);
  EXPECT_EQ(events[0].waited_for, 77u);
}

TEST(WorkerStream, Trace_EventOfTheStream_NamesTheLastTaskBeforeIt) {
  TraceRecorder trace;
  const auto gather = make_worker_stream("gather", 2, &trace, 1);
  EXPECT_EQ(gather->record().state()->trace_id(), 0u);
  gather->enqueue("first", [] {});
  gather->enqueue("last", [] {});
  const Event event = gather->record();
  gather->enqueue("later", [] {});
  gather->synchronize();
  EXPECT_EQ(event.state()->trace(), &trace);
  for (const TraceEvent& recorded : trace.events()) {
    EXPECT_EQ(recorded.id == event.state()->trace_id(), recorded.name == "last");
  }
}

// Workers in a ring, a host that polls and waits, and a trace: the food of the thread
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

}  // namespace worker_stream_test
}  // namespace zinc
