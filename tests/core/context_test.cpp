#include "core/context.h"

#include <gmock/gmock.h>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/trace.h"
#include "tests/core/memory_sources.h"

namespace zinc {
namespace context_test {

using Execution = ContextOptions::Execution;

TEST(Context, Current_WithoutAScope_SaysWhatToDo) {
  EXPECT_EQ(Context::current_or_null(), nullptr);
  try {
    Context::current();
    FAIL() << "there was a context";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("zinc::ContextScope"));
    EXPECT_THAT(error.what(), testing::HasSubstr("zinc::connect()"));
  }
}

TEST(Context, Scopes_NestAndRestoreContextAndThreads) {
  const int before = num_parallel_threads();
  Context outer({.num_threads = 3});
  Context inner({.num_threads = 5});
  {
    const ContextScope outer_scope(outer);
    EXPECT_EQ(&Context::current(), &outer);
    EXPECT_EQ(num_parallel_threads(), 3);
    {
      const ContextScope inner_scope(inner);
      EXPECT_EQ(&Context::current(), &inner);
      EXPECT_EQ(num_parallel_threads(), 5);
      const ContextScope again(outer);
      EXPECT_EQ(&Context::current(), &outer);
    }
    EXPECT_EQ(&Context::current(), &outer);
    EXPECT_EQ(num_parallel_threads(), 3);
  }
  EXPECT_EQ(Context::current_or_null(), nullptr);
  EXPECT_EQ(num_parallel_threads(), before);
}

TEST(Context, Scope_LeftByAnException_IsRestored) {
  Context context;
  const auto throws = [&] {
    const ContextScope scope(context);
    throw DataError("bad");
  };
  EXPECT_THROW(throws(), DataError);
  EXPECT_EQ(Context::current_or_null(), nullptr);
}

TEST(Context, RanksAsThreads_HaveContextsOfTheirOwn) {
  constexpr int kRanks = 4;
  std::vector<std::thread> ranks;
  std::atomic<int> together = 0;
  std::atomic<int> right = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Context context({.seed = static_cast<uint64_t>(rank), .num_threads = 1 + rank});
      const ContextScope scope(context);
      ++together;
      while (together < kRanks) std::this_thread::yield();
      const Block block = Context::current().allocate(256 * (rank + 1), Label::parameters);
      const int64_t live = Context::current().allocator().report().at(Tier::device).live;
      const bool own = Context::current().random().seed() == static_cast<uint64_t>(rank) &&
                       live == 256 * (rank + 1) && num_parallel_threads() == 1 + rank;
      right += own ? 1 : 0;
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(right, kRanks);
  EXPECT_EQ(Context::current_or_null(), nullptr);
}

TEST(Context, StreamThreads_DoNotSeeTheContext) {
  Context context;
  const ContextScope scope(context);
  Context* seen = &context;
  context.stream(StreamRole::gather)->enqueue("look", [&] { seen = Context::current_or_null(); });
  context.synchronize();
  EXPECT_EQ(seen, nullptr);
}

TEST(Context, Execution_ChoosesTheStreams) {
  const auto kinds = [](const ContextOptions::Execution execution, bool meta) {
    Context context({.device = {.meta = meta}, .execution = execution});
    std::vector<StreamKind> found;
    std::set<int> lanes;
    for (int i = 0; i < kNumStreamRoles; ++i) {
      const auto role = static_cast<StreamRole>(i);
      found.push_back(context.stream(role)->kind());
      lanes.insert(context.stream(role)->lane());
      EXPECT_EQ(context.stream(role)->name(), name_of(role));
    }
    EXPECT_EQ(lanes.size(), static_cast<size_t>(kNumStreamRoles));
    EXPECT_EQ(lanes.count(0), 0u);  // the issuing thread's row
    return found;
  };
  using K = StreamKind;
  EXPECT_EQ(kinds(Execution::inline_all, false), std::vector(5, K::immediate));
  EXPECT_EQ(kinds(Execution::concurrent, false),
            (std::vector{K::immediate, K::worker, K::worker, K::worker, K::worker}));
  EXPECT_EQ(kinds(Execution::shuffled, false), std::vector(5, K::shuffled));
  EXPECT_EQ(kinds(Execution::concurrent, true), std::vector(5, K::immediate));
}

TEST(Context, Cuda_WithoutADevice_IsRefused) {
  if (cuda_devices().empty()) {
    EXPECT_THROW(Context({.device = {.kind = DeviceKind::cuda}}), CudaError);
  }
  Context meta({.device = {.kind = DeviceKind::cuda, .meta = true}});
  const Block petabyte = meta.allocate(int64_t{1} << 50, Label::parameters);
  EXPECT_TRUE(petabyte);
}

TEST(Context, Memory_OptionsReachTheAllocator) {
  ContextOptions options;
  options.memory.limits[0] = 1024;
  const auto log = std::make_shared<SourceLog>();
  options.memory_source = std::make_unique<ObservedSource>(make_host_memory_source(), log);
  Context context(std::move(options));
  EXPECT_THROW(context.allocate(2048, Label::gradients), OutOfMemory);
  const Block block = context.allocate(1024, Label::gradients);
  EXPECT_EQ(log->num_acquires, 1);
}

TEST(Context, Blocks_OutliveTheirContext) {
  Block block;
  for (const Execution execution :
       {Execution::inline_all, Execution::concurrent, Execution::shuffled}) {
    {
      Context context({.memory = {.poison = true}, .execution = execution});
      block = context.allocator().allocate(4096, Tier::device, Label::communication,
                                           context.stream(StreamRole::gather));
    }
    block.reset();
  }
}

TEST(Context, Synchronize_CoversEveryStreamAndThrowsWhatFailed) {
  Context context;
  std::atomic<int> ran = 0;
  for (int i = 0; i < kNumStreamRoles; ++i) {
    context.stream(static_cast<StreamRole>(i)).submit("count", [&] { ++ran; });
  }
  context.synchronize();
  EXPECT_EQ(ran, kNumStreamRoles);
  context.stream(StreamRole::copy_out).submit("throw", [] { throw DataError("bad"); });
  EXPECT_THROW(context.synchronize(), DataError);
}

TEST(Context, Destructor_FinishesWorkAndDropsItsFailure) {
  std::atomic<int> ran = 0;
  for (const Execution execution : {Execution::concurrent, Execution::shuffled}) {
    Context context({.execution = execution});
    context.stream(StreamRole::reduce).submit("count", [&] { ++ran; });
    context.stream(StreamRole::gather).submit("throw", [] { throw DataError("bad"); });
  }
  EXPECT_EQ(ran, 2);
}

struct Counter {
  int value = 0;
};

TEST(Context, Slot_IsOnePerTypeAndContext) {
  Context a;
  Context b;
  a.slot<Counter>().value = 7;
  EXPECT_EQ(a.slot<Counter>().value, 7);
  EXPECT_EQ(b.slot<Counter>().value, 0);
  EXPECT_EQ(a.slot<std::string>(), "");
  EXPECT_EQ(&a.slot<Counter>(), &a.slot<Counter>());
}

// An object that queued work may use: it ends only after the work.
struct Handle {
  std::atomic<bool>* gone = nullptr;
  Handle() = default;
  ~Handle() { *gone = true; }
};

TEST(Context, Slot_OutlivesTheWorkOfTheStreams) {
  std::atomic<bool> gone = false;
  bool seen = true;
  {
    Context context;
    context.slot<Handle>().gone = &gone;
    context.stream(StreamRole::gather)->enqueue("use the handle", [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      seen = gone;
    });
  }
  EXPECT_FALSE(seen);
  EXPECT_TRUE(gone);
}

// A slot may hand work to the streams until its end.
struct Closer {
  Context* context = nullptr;
  std::atomic<int>* ran = nullptr;
  Closer() = default;
  ~Closer() {
    context->stream(StreamRole::copy_out)->enqueue("close", [ran = ran] { ++*ran; });
  }
};

TEST(Context, Slot_MayUseTheStreamsWhileItIsDestroyed) {
  std::atomic<int> ran = 0;
  {
    Context context;
    context.slot<Closer>().context = &context;
    context.slot<Closer>().ran = &ran;
  }
  EXPECT_EQ(ran, 1);
}

TEST(Context, Trace_ReachesEveryStream) {
  TraceRecorder trace;
  {
    Context context({.trace = &trace});
    for (int i = 0; i < kNumStreamRoles; ++i) {
      context.stream(static_cast<StreamRole>(i)).submit("work", [] {});
    }
  }
  std::set<int> lanes;
  for (const TraceEvent& event : trace.events()) {
    if (event.name == "work") lanes.insert(event.lane);
  }
  EXPECT_EQ(lanes, (std::set<int>{1, 2, 3, 4, 5}));
}

TEST(Context, NumThreads_ReachesParallelLoops) {
  Context context({.num_threads = 2});
  const ContextScope scope(context);
  int team = 0;
  parallel_for(8, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) team = num_parallel_threads();
  });
  EXPECT_EQ(team, 2);
}

}  // namespace context_test
}  // namespace zinc
