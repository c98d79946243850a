#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/trace.h"

namespace zinc {
namespace shuffled_executor_test {

using Order = ShuffledExecutor::Order;

TEST(ShuffledExecutor, Latest_RunsOnlyWhatAWaitNeeds) {
  ShuffledExecutor executor(1, Order::latest);
  const auto a = executor.make_stream("a", 1, nullptr);
  const auto b = executor.make_stream("b", 2, nullptr);
  const auto c = executor.make_stream("c", 3, nullptr);
  std::string ran;
  a->enqueue("a1", [&] { ran += 'A'; });
  const Event a1 = a->record();
  a->enqueue("a2", [&] { ran += 'x'; });
  c->enqueue("c1", [&] { ran += 'C'; });
  b->wait(a1);
  b->enqueue("b1", [&] { ran += 'B'; });
  const Event b1 = b->record();
  b->enqueue("b2", [&] { ran += 'x'; });
  EXPECT_EQ(ran, "");
  b1.wait();
  EXPECT_EQ(ran, "AB");
  c->synchronize();
  EXPECT_EQ(ran, "ABC");
  executor.drain();
  EXPECT_EQ(ran, "ABCxx");
}

TEST(ShuffledExecutor, Earliest_RunsAtTheIssue) {
  ShuffledExecutor executor(1, Order::earliest);
  const auto a = executor.make_stream("a", 1, nullptr);
  int value = 0;
  a->enqueue("set", [&] { value = 1; });
  EXPECT_EQ(value, 1);
}

TEST(ShuffledExecutor, Query_RunsOnePieceOfWorkThatIsNeeded) {
  ShuffledExecutor executor(1, Order::latest);
  const auto a = executor.make_stream("a", 1, nullptr);
  const auto b = executor.make_stream("b", 2, nullptr);
  int ran = 0;
  bool other = false;
  for (int i = 0; i < 3; ++i) a->enqueue("add", [&] { ++ran; });
  b->enqueue("other", [&] { other = true; });
  const Event event = a->record();
  EXPECT_FALSE(event.query());
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(event.query());
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(other);
}

// A gather into one of two buffers, a computation that reads it, and the reuse of the buffer: the
// program of a prefetching engine with three event waits. Returns the number of wrong values.
int wrong_values(uint64_t seed, Order order, bool wait_for_gather, bool wait_before_reuse) {
  ShuffledExecutor executor(seed, order);
  const auto gather = executor.make_stream("gather", 1, nullptr);
  const auto compute = executor.make_stream("compute", 2, nullptr);
  int buffers[2] = {-1, -1};
  int wrong = 0;
  Event used[2];
  for (int i = 0; i < 12; ++i) {
    int& buffer = buffers[i % 2];
    if (wait_before_reuse) gather->wait(used[i % 2]);
    gather->enqueue("gather", [&buffer, i] { buffer = i; });
    if (wait_for_gather) compute->wait(gather->record());
    compute->enqueue("use", [&buffer, &wrong, i] { wrong += buffer == i ? 0 : 1; });
    used[i % 2] = compute->record();
    if (i % 6 == 5) used[i % 2].wait();
  }
  compute->synchronize();
  return wrong;
}

TEST(ShuffledExecutor, AllWaitsPresent_NeverAWrongValue) {
  for (const Order order : {Order::by_seed, Order::latest, Order::earliest, Order::random}) {
    for (uint64_t seed = 0; seed < 500; ++seed) {
      ASSERT_EQ(wrong_values(seed, order, true, true), 0) << "seed " << seed;
    }
  }
}

// The fault shows in every run of 20 seeds, not only in a lucky one.
TEST(ShuffledExecutor, MissingWait_ShowsWithinTwentySeeds) {
  for (uint64_t first = 0; first < 400; first += 20) {
    int without_gather = 0;
    int without_reuse = 0;
    for (uint64_t seed = first; seed < first + 20; ++seed) {
      without_gather += wrong_values(seed, Order::by_seed, false, true) > 0 ? 1 : 0;
      without_reuse += wrong_values(seed, Order::by_seed, true, false) > 0 ? 1 : 0;
    }
    EXPECT_GT(without_gather, 0) << "seeds from " << first;
    EXPECT_GT(without_reuse, 0) << "seeds from " << first;
  }
}

// The host is one more party: it reads what nobody waited for.
TEST(ShuffledExecutor, MissingHostWait_ShowsWithinTwentySeeds) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ShuffledExecutor executor(seed);
    const auto s = executor.make_stream("compute", 1, nullptr);
    int value = 0;
    s->enqueue("set", [&] { value = 1; });
    wrong += value == 1 ? 0 : 1;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 20);  // with Order::by_seed work also runs at its issue
}

// The order in which a program of three streams runs, one letter a task.
std::string order_of(uint64_t seed, Order order, TraceRecorder* trace) {
  std::string ran;
  {
    ShuffledExecutor executor(seed, order);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(executor.make_stream("s", i + 1, trace));
    Event last;
    for (size_t i = 0; i < 60; ++i) {
      Stream& s = *streams[(i * i) % 3];
      s.enqueue("task", [&ran, i] { ran += static_cast<char>('0' + i); });
      if (i % 5 == 0) last = s.record();
      if (i % 7 == 0) streams[i % 3]->wait(last);
      if (i % 11 == 0) (void)last.query();
      if (i % 20 == 19) last.wait();
    }
  }
  return ran;
}

TEST(ShuffledExecutor, Order_IsAFunctionOfTheSeedAndTheCalls) {
  for (const Order order : {Order::by_seed, Order::latest, Order::earliest, Order::random}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      TraceRecorder trace;
      const std::string once = order_of(seed, order, nullptr);
      EXPECT_EQ(once.size(), 60u);
      EXPECT_EQ(once, order_of(seed, order, nullptr));
      EXPECT_EQ(once, order_of(seed, order, &trace)) << "a trace changed the order";
      std::string in_a_thread;
      std::thread([&] { in_a_thread = order_of(seed, order, nullptr); }).join();
      EXPECT_EQ(once, in_a_thread);
    }
  }
}

TEST(ShuffledExecutor, Order_DiffersFromSeedToSeed) {
  std::set<std::string> by_seed;
  std::set<std::string> random;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    by_seed.insert(order_of(seed, Order::by_seed, nullptr));
    random.insert(order_of(seed, Order::random, nullptr));
  }
  EXPECT_EQ(by_seed.size(), 20u);
  EXPECT_EQ(random.size(), 20u);
}

TEST(ShuffledExecutor, ReadyStreams_EachRunsFirstUnderSomeSeed) {
  std::set<std::string> firsts;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ShuffledExecutor executor(seed, Order::latest);
    std::string ran;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(executor.make_stream("s", i + 1, nullptr));
      streams.back()->enqueue("task", [&ran, i] { ran += static_cast<char>('a' + i); });
    }
    executor.drain();
    firsts.insert(ran.substr(0, 1));
  }
  EXPECT_EQ(firsts, (std::set<std::string>{"a", "b", "c"}));
}

TEST(ShuffledExecutor, TracedInlineStream_WaitsWithoutChangingTheOrder) {
  const auto order = [](TraceRecorder* trace) {
    ShuffledExecutor executor(4, Order::random);
    const auto a = executor.make_stream("a", 1, trace);
    const auto b = executor.make_stream("b", 2, trace);
    const auto host = make_inline_stream("compute", 3, trace);
    std::string ran;
    for (int i = 0; i < 40; ++i) {
      (i % 2 == 0 ? a : b)->enqueue("task", [&, i] { ran += static_cast<char>('0' + i); });
      if (i % 8 == 7) host->wait(a->record());
    }
    executor.drain();
    return ran;
  };
  TraceRecorder trace;
  EXPECT_EQ(order(nullptr), order(&trace));
  for (const TraceEvent& event : trace.events()) EXPECT_NE(event.kind, TraceKind::stall);
}

// How many of `n` issues on two independent streams left work pending, ran just themselves, or ran
// older work too.
TEST(ShuffledExecutor, BySeed_OneRunMixesThreeOrders) {
  int mixed_runs = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ShuffledExecutor executor(seed);
    const auto a = executor.make_stream("a", 1, nullptr);
    const auto b = executor.make_stream("b", 2, nullptr);
    int ran = 0;
    int longest_delay = 0;
    int runs_of_everything = 0;
    int out_of_order = 0;
    int newest = -1;
    for (int i = 0; i < 300; ++i) {
      (i % 2 == 0 ? a : b)->enqueue("count", [&, i] {
        ++ran;
        out_of_order += i < newest ? 1 : 0;
        newest = std::max(newest, i);
      });
      longest_delay = std::max(longest_delay, i + 1 - ran);
      runs_of_everything += ran == i + 1 ? 1 : 0;
    }
    if (longest_delay >= 8 && runs_of_everything >= 20 && out_of_order >= 5) ++mixed_runs;
  }
  EXPECT_GE(mixed_runs, 15);
}

TEST(ShuffledExecutor, LongBacklog_IsBoundedAndRunsInOrder) {
  ShuffledExecutor executor(1, Order::latest);
  const auto a = executor.make_stream("a", 1, nullptr);
  const auto b = executor.make_stream("b", 2, nullptr);
  const int n = 3 * kMaxQueuedTasks;
  int ran = 0;
  bool in_order = true;
  for (int i = 0; i < n; ++i) {
    a->enqueue("count", [&, i] { in_order = in_order && ran++ == i; });
    EXPECT_LE(i + 1 - ran, kMaxQueuedTasks);
    if (i % 3 == 0) b->wait(a->record());
  }
  b->synchronize();
  EXPECT_TRUE(in_order);
  a->synchronize();
  EXPECT_EQ(ran, n);
}

TEST(ShuffledExecutor, Wait_ForAnEventOfAWorker_BlocksOnlyWhereItIsNeeded) {
  const auto worker = make_worker_stream("copy", 2, nullptr, 1);
  ShuffledExecutor executor(1, Order::latest);
  const auto s = executor.make_stream("compute", 1, nullptr);
  int value = 0;
  worker->enqueue("set", [&] { value = 1; });
  s->wait(worker->record());
  int seen = 0;
  s->enqueue("read", [&] { seen = value; });
  s->synchronize();
  EXPECT_EQ(seen, 1);
}

TEST(ShuffledExecutor, Task_ThatWaitsForAnotherStream_RunsItInside) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ShuffledExecutor executor(seed);
    const auto a = executor.make_stream("a", 1, nullptr);
    const auto b = executor.make_stream("b", 2, nullptr);
    int value = 0;
    a->enqueue("set", [&] { value = 1; });
    int seen = 0;
    b->enqueue("read", [&, event = a->record()] {
      event.wait();
      seen = value;
    });
    b->synchronize();
    EXPECT_EQ(seen, 1);
  }
}

TEST(ShuffledExecutor, Task_ThatWaitsForItself_IsReported) {
  ShuffledExecutor executor(1, Order::latest);
  const auto s = executor.make_stream("s", 1, nullptr);
  s->enqueue("wait", [&] { s->synchronize(); });
  EXPECT_THROW(s->synchronize(), InternalError);
}

TEST(ShuffledExecutor, Streams_OutliveTheExecutor) {
  auto executor = std::make_unique<ShuffledExecutor>(1, Order::latest);
  const auto s = executor->make_stream("s", 1, nullptr);
  int value = 0;
  s->enqueue("set", [&] { value = 1; });
  executor.reset();
  EXPECT_EQ(value, 1);
  s->enqueue("set", [&] { value = 2; });
  s->synchronize();
  EXPECT_EQ(value, 2);
}

}  // namespace shuffled_executor_test
}  // namespace zinc
