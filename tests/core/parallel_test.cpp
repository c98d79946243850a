#include "core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace zinc {
namespace parallel_test {

using Chunks = std::set<std::pair<int64_t, int64_t>>;

class ParallelFor : public testing::Test {
 protected:
  void TearDown() override { set_num_parallel_threads(threads_before_); }

 private:
  int threads_before_ = num_parallel_threads();
};

Chunks chunks_of(int64_t n, int64_t grain) {
  Chunks chunks;
  std::mutex mutex;
  int calls = 0;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    chunks.insert({begin, end});
    ++calls;
  });
  EXPECT_EQ(static_cast<int>(chunks.size()), calls) << "a chunk ran twice";
  return chunks;
}

TEST_F(ParallelFor, Chunks_DependOnSizeAndGrainAlone) {
  for (const int64_t n : {0, 1, 2, 7, 64, 100, 1023}) {
    for (const int64_t grain : {1, 2, 7, 64, 2000}) {
      Chunks expected;
      for (int64_t begin = 0; begin < n; begin += grain) {
        expected.insert({begin, std::min(n, begin + grain)});
      }
      for (const int threads : {1, 2, 3, 8}) {
        set_num_parallel_threads(threads);
        EXPECT_EQ(chunks_of(n, grain), expected) << n << " by " << grain << " on " << threads;
      }
    }
  }
}

TEST_F(ParallelFor, Extremes_OfSizeAndGrain) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  set_num_parallel_threads(4);
  EXPECT_EQ(chunks_of(10, kMax), (Chunks{{0, 10}}));
  EXPECT_EQ(chunks_of(kMax, kMax), (Chunks{{0, kMax}}));
  EXPECT_EQ(chunks_of(kMax, kMax - 1), (Chunks{{0, kMax - 1}, {kMax - 1, kMax}}));
  EXPECT_EQ(chunks_of(3, 0), (Chunks{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(chunks_of(3, -5), (Chunks{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(chunks_of(-3, 1), Chunks{});
}

// Waits for `is_true` for as long as a test may take; false if it never came.
template <class IsTrue>
bool comes(IsTrue&& is_true) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void expect_three_threads_at_once() {
  std::array<std::atomic<int>, 3> arrived{};
  std::array<std::atomic<std::thread::id>, 3> threads{};
  std::atomic<bool> all = true;
  parallel_for(3, 1, [&](int64_t begin, int64_t) {
    arrived[static_cast<size_t>(begin)] = 1 + parallel_thread();
    threads[static_cast<size_t>(begin)] = std::this_thread::get_id();
    EXPECT_EQ(num_parallel_threads(), 3);
    EXPECT_TRUE(in_parallel_loop());
    if (!comes([&] { return arrived[0] * arrived[1] * arrived[2] != 0; })) all = false;
  });
  EXPECT_TRUE(all);
  EXPECT_EQ((std::set<int>{arrived[0], arrived[1], arrived[2]}), (std::set<int>{1, 2, 3}));
  EXPECT_EQ((std::set<std::thread::id>{threads[0], threads[1], threads[2]}).size(), 3u);
  EXPECT_FALSE(in_parallel_loop());
  EXPECT_EQ(parallel_thread(), 0);
}

// At the first loop, and when the helpers have long been asleep.
TEST_F(ParallelFor, SeveralChunks_AreRunByAsManyThreadsAtOnce) {
  set_num_parallel_threads(3);
  for (int loop = 0; loop < 2; ++loop) {
    expect_three_threads_at_once();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The thread that is held up has most of its share before it: the other one does that too.
TEST_F(ParallelFor, ChunksOfAThreadThatIsHeldUp_AreDoneByTheOthers) {
  set_num_parallel_threads(2);
  for (const int held_up : {0, 1}) {
    std::atomic<int64_t> done = 0;
    std::atomic<bool> is_held_up = false;
    std::atomic<bool> others_did_them = true;
    parallel_for(64, 1, [&](int64_t, int64_t) {
      if (parallel_thread() == held_up && !is_held_up.exchange(true)) {
        // A portion of a share of 32 chunks is 8.
        if (!comes([&] { return done >= 64 - 8; })) others_did_them = false;
      } else if (parallel_thread() != held_up) {
        EXPECT_TRUE(comes([&] { return is_held_up.load(); }));
      }
      ++done;
    });
    EXPECT_EQ(done, 64);
    EXPECT_TRUE(others_did_them) << "thread " << held_up;
  }
}

// Helpers that sleep, and helpers that begin when a loop has just ended.
TEST_F(ParallelFor, ManyLoops_WithAndWithoutPauses) {
  for (const int threads : {2, 3, 8}) {
    set_num_parallel_threads(threads);
    for (int loop = 0; loop < 400; ++loop) {
      std::vector<int> ran(static_cast<size_t>(1 + loop % 40), 0);
      parallel_for(static_cast<int64_t>(ran.size()), 1,
                   [&](int64_t begin, int64_t) { ++ran[static_cast<size_t>(begin)]; });
      EXPECT_EQ(ran, std::vector<int>(ran.size(), 1)) << "loop " << loop << " of " << threads;
      if (loop % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

TEST_F(ParallelFor, EveryThread_HasATeamOfItsOwn) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&sum, i] {
      set_num_parallel_threads(1 + i);
      for (int loop = 0; loop < 100; ++loop) {
        parallel_for(10, 1, [&](int64_t begin, int64_t) { sum += begin; });
      }
      EXPECT_EQ(num_parallel_threads(), 1 + i);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 3 * 100 * 45);
}

// A fork has the calling thread alone.
TEST_F(ParallelFor, AFork_RunsItsLoops) {
  set_num_parallel_threads(2);
  EXPECT_EQ(chunks_of(10, 1).size(), 10u);
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> count = 0;
    parallel_for(100, 1, [&](int64_t, int64_t) { ++count; });
    std::exit(count == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ParallelFor, Nested_RunsSeriallyInsideItsChunk) {
  set_num_parallel_threads(2);
  std::atomic<int> sum = 0;
  std::atomic<bool> moved = false;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const int outer = parallel_thread();
    const std::thread::id thread = std::this_thread::get_id();
    parallel_for(8, 1, [&](int64_t begin, int64_t) {
      sum += static_cast<int>(begin);
      if (std::this_thread::get_id() != thread || parallel_thread() != outer) moved = true;
    });
  });
  EXPECT_EQ(sum, 4 * 28);
  EXPECT_FALSE(moved);
}

TEST_F(ParallelFor, Exceptions_TheLowestChunkWins) {
  for (const int threads : {1, 2, 8}) {
    set_num_parallel_threads(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      try {
        parallel_for(64, 1, [](int64_t begin, int64_t) {
          if (begin >= 13) throw DataError(str("chunk ", begin));
        });
        FAIL() << "the exception was lost";
      } catch (const DataError& error) {
        EXPECT_EQ(std::string(error.what()), "chunk 13");
      }
    }
    EXPECT_EQ(chunks_of(3, 1).size(), 3u);  // the next loop runs as ever
  }
}

}  // namespace parallel_test
}  // namespace zinc
