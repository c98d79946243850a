#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/trace.h"
#include "tests/core/blocked_event.h"
#include "tests/core/heap_count.h"

namespace zinc {
namespace inline_stream_test {

using std::chrono::milliseconds;

TEST(InlineStream, Submit_Untraced_RunsAtTheCallWithoutTheHeap) {
  const auto s = make_inline_stream("compute", 1, nullptr);
  const StreamRef ref = *s;
  EXPECT_TRUE(s->runs_at_submit());
  struct {
    double payload[32] = {1.0};
  } big;  // more than a std::function holds in place
  double sum = 0;
  const int64_t before = heap_allocations();
  for (int i = 0; i < 100; ++i) ref.submit("add", [&sum, big] { sum += big.payload[0]; });
  EXPECT_EQ(heap_allocations() - before, 0);
  EXPECT_EQ(sum, 100.0);
}

TEST(InlineStream, Submit_WorkThatThrows_ThrowsAtTheCallAndTheStreamGoesOn) {
  TraceRecorder trace;
  for (TraceRecorder* recorder : {static_cast<TraceRecorder*>(nullptr), &trace}) {
    const auto s = make_inline_stream("compute", 1, recorder);
    const StreamRef ref = *s;
    EXPECT_THROW(ref.submit("throw", [] { throw DataError("bad"); }), DataError);
    EXPECT_THROW(s->enqueue("throw", [] { throw DataError("bad"); }), DataError);
    s->synchronize();
    s->record().wait();
    int value = 0;
    ref.submit("set", [&] { value = 1; });
    EXPECT_EQ(value, 1);
  }
}

TEST(InlineStream, Wait_ForAWorker_BlocksTheCaller) {
  const auto compute = make_inline_stream("compute", 1, nullptr);
  const auto gather = make_worker_stream("gather", 2, nullptr, 1);
  std::atomic<bool> done = false;
  gather->enqueue("slow_gather", [&] {
    std::this_thread::sleep_for(milliseconds(20));
    done = true;
  });
  compute->wait(gather->record());
  EXPECT_TRUE(done);
}

TEST(InlineStream, Wait_ThatBlocks_IsAStallAndWhatTheNextTaskWaitedFor) {
  TraceRecorder trace;
  const auto compute = make_inline_stream("compute", 3, &trace);
  compute->wait(Event(std::make_shared<BlockedEvent>(77)));
  StreamRef(*compute).submit("use", [] {});
  StreamRef(*compute).submit("next", [] {});
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, TraceKind::stall);
  EXPECT_EQ(events[0].lane, 3);
  EXPECT_EQ(events[0].waited_for, 77u);
  EXPECT_LE(events[0].end_ns, events[1].begin_ns);
  EXPECT_EQ(events[1].name, "use");
  EXPECT_EQ(events[1].waited_for, 77u);
  EXPECT_EQ(events[2].waited_for, 0u);
}

TEST(InlineStream, Wait_ForADoneEvent_RecordsNoStall) {
  TraceRecorder trace;
  const auto compute = make_inline_stream("compute", 1, &trace);
  const auto gather = make_worker_stream("gather", 2, &trace, 1);
  gather->enqueue("quick", [] {});
  const Event event = gather->record();
  while (!event.query()) std::this_thread::yield();
  compute->wait(event);
  event.wait();
  StreamRef(*compute).submit("use", [] {});
  for (const TraceEvent& recorded : trace.events()) {
    EXPECT_NE(recorded.kind, TraceKind::stall);
    EXPECT_EQ(recorded.waited_for, 0u);
  }
}

TEST(InlineStream, Wait_ForAFailedStream_ThrowsAtTheCallAndKeepsTheStall) {
  TraceRecorder trace;
  const auto compute = make_inline_stream("compute", 1, &trace);
  const auto failure = std::make_exception_ptr(DataError("bad shard"));
  EXPECT_THROW(compute->wait(Event(std::make_shared<BlockedEvent>(77, nullptr, failure))),
               DataError);
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, TraceKind::stall);
}

}  // namespace inline_stream_test
}  // namespace zinc
