#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "core/error.h"
#include "core/executor.h"
#include "core/trace.h"
#include "tests/core/heap_count.h"

namespace zinc {
namespace {

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

TEST(InlineStream, Wait_ForAWorker_BlocksTheCallerAndRecordsAStall) {
  TraceRecorder trace;
  const auto compute = make_inline_stream("compute", 1, &trace);
  const auto gather = make_worker_stream("gather", 2, &trace, 1);
  std::atomic<bool> done = false;
  gather->enqueue("slow_gather", [&] {
    std::this_thread::sleep_for(milliseconds(30));
    done = true;
  });
  compute->wait(gather->record());
  EXPECT_TRUE(done);
  StreamRef(*compute).submit("use", [] {});

  TraceEvent task;
  TraceEvent stall;
  TraceEvent use;
  for (const TraceEvent& event : trace.events()) {
    if (event.name == "slow_gather") task = event;
    if (event.kind == TraceKind::stall) stall = event;
    if (event.name == "use") use = event;
  }
  EXPECT_EQ(stall.lane, 1);
  EXPECT_GT(task.id, 0u);
  EXPECT_EQ(stall.waited_for, task.id);
  EXPECT_EQ(use.waited_for, task.id);
  EXPECT_LE(task.end_ns, stall.end_ns);
  EXPECT_LE(stall.end_ns, use.begin_ns);
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
  const auto gather = make_worker_stream("gather", 2, &trace, 1);
  gather->enqueue("throw", [] {
    std::this_thread::sleep_for(milliseconds(20));
    throw DataError("bad shard");
  });
  EXPECT_THROW(compute->wait(gather->record()), DataError);
  int stalls = 0;
  for (const TraceEvent& event : trace.events()) stalls += event.kind == TraceKind::stall ? 1 : 0;
  EXPECT_EQ(stalls, 1);
}

}  // namespace
}  // namespace zinc
