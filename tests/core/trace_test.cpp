#include "core/trace.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace zinc {
namespace trace_test {

TEST(TraceRecorder, Record_AssignsAnIdWhereThereIsNone) {
  TraceRecorder trace;
  const uint64_t own = trace.next_id();
  trace.record({.name = "with id", .id = own});
  trace.record({.name = "without"});
  const std::vector<TraceEvent> events = trace.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].id, own);
  EXPECT_GT(events[1].id, 0u);
  EXPECT_NE(events[1].id, own);
}

TEST(TraceRecorder, Capacity_KeepsTheFirstAndCountsTheRest) {
  TraceRecorder trace(3);
  for (int i = 0; i < 5; ++i) trace.record({.name = std::to_string(i)});
  ASSERT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.events()[2].name, "2");
  EXPECT_EQ(trace.dropped(), 2);
  trace.clear();
  EXPECT_TRUE(trace.events().empty());
  EXPECT_EQ(trace.dropped(), 0);
  trace.record({.name = "again"});
  EXPECT_EQ(trace.events().size(), 1u);
}

TEST(TraceRecorder, SeveralThreads_LoseNothingAndShareNoId) {
  TraceRecorder trace;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trace, t] {
      for (int i = 0; i < 500; ++i) trace.record({.lane = t});
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<uint64_t> ids;
  for (const TraceEvent& event : trace.events()) ids.insert(event.id);
  EXPECT_EQ(ids.size(), 2000u);
}

TEST(TraceRecorder, Clock_NeverRunsBackwards) {
  int64_t last = TraceRecorder::now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = TraceRecorder::now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(TraceKind, Names_AreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(TraceKind::mark); ++i) {
    names.insert(name_of(static_cast<TraceKind>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(TraceKind::mark) + 1);
  EXPECT_EQ(names.count("?"), 0u);
}

}  // namespace trace_test
}  // namespace zinc
