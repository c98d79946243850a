#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace zinc {
namespace parallel_test {

using Chunks = std::set<std::pair<int64_t, int64_t>>;

class ParallelFor : public testing::Test {
 protected:
  void TearDown() override { omp_set_num_threads(threads_before_); }

 private:
  int threads_before_ = omp_get_max_threads();
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
        omp_set_num_threads(threads);
        EXPECT_EQ(chunks_of(n, grain), expected) << n << " by " << grain << " on " << threads;
      }
    }
  }
}

TEST_F(ParallelFor, Extremes_OfSizeAndGrain) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  omp_set_num_threads(4);
  EXPECT_EQ(chunks_of(10, kMax), (Chunks{{0, 10}}));
  EXPECT_EQ(chunks_of(kMax, kMax), (Chunks{{0, kMax}}));
  EXPECT_EQ(chunks_of(kMax, kMax - 1), (Chunks{{0, kMax - 1}, {kMax - 1, kMax}}));
  EXPECT_EQ(chunks_of(3, 0), (Chunks{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(chunks_of(3, -5), (Chunks{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(chunks_of(-3, 1), Chunks{});
}

TEST_F(ParallelFor, SeveralChunks_UseTheCallersThreadCount) {
  omp_set_num_threads(3);
  std::mutex mutex;
  std::set<int> threads;
  int team = 0;
  parallel_for(30, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(omp_get_thread_num());
    team = omp_get_num_threads();
  });
  EXPECT_EQ(team, 3);
  EXPECT_EQ(threads, (std::set<int>{0, 1, 2}));
}

TEST_F(ParallelFor, Nested_RunsSeriallyInsideItsChunk) {
  omp_set_num_threads(2);
  std::atomic<int> sum = 0;
  std::atomic<bool> moved = false;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    const int outer = omp_get_thread_num();
    const int level = omp_get_level();
    parallel_for(8, 1, [&](int64_t begin, int64_t) {
      sum += static_cast<int>(begin);
      if (omp_get_level() != level || omp_get_thread_num() != outer) moved = true;
    });
  });
  EXPECT_EQ(sum, 4 * 28);
  EXPECT_FALSE(moved);
}

TEST_F(ParallelFor, Exceptions_TheLowestChunkWins) {
  for (const int threads : {1, 2, 8}) {
    omp_set_num_threads(threads);
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
