#include "comm/cpu_share.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "core/error.h"

namespace zinc::comm {
namespace cpu_share_test {

TEST(CpuShare, AnyDivision_IsDisjointAndCoversAll) {
  for (int count = 1; count <= 17; ++count) {
    std::vector<int> cpus;
    for (int i = 0; i < count; ++i) cpus.push_back(100 + i);
    for (int ranks = 1; ranks <= count; ++ranks) {
      std::multiset<int> seen;
      for (int r = 0; r < ranks; ++r) {
        const CpuShare share = share_of(cpus, r, ranks);
        EXPECT_TRUE(share.exclusive);
        const auto size = static_cast<int>(share.cpus.size());
        EXPECT_TRUE(size == count / ranks || size == count / ranks + 1);
        seen.insert(share.cpus.begin(), share.cpus.end());
      }
      EXPECT_EQ(std::vector<int>(seen.begin(), seen.end()), cpus) << count << " over " << ranks;
    }
  }
}

TEST(CpuShare, MoreRanksThanProcessors_ShareOneEach) {
  const std::vector<int> cpus{3, 5};
  for (int r = 0; r < 5; ++r) {
    const CpuShare share = share_of(cpus, r, 5);
    EXPECT_FALSE(share.exclusive);
    EXPECT_EQ(share.cpus, std::vector<int>{cpus[static_cast<size_t>(r % 2)]});
  }
  EXPECT_THROW(share_of({}, 0, 1), InvalidArgument);
}

TEST(CpuShare, OmpNumThreads_IsANumberOrRefused) {
  EXPECT_EQ(threads_in(""), 0);
  EXPECT_EQ(threads_in("3"), 3);
  EXPECT_EQ(threads_in("4,2,1"), 4);
  for (const char* text : {"0", "-1", "two", "3x", " 3", ",", "99999999999"}) {
    EXPECT_THROW(threads_in(text), InvalidArgument) << text;
  }
}

TEST(CpuShare, ThreadsOfARank_AreNoMoreThanItsProcessors) {
  EXPECT_EQ(threads_of(1, 4), 1);
  EXPECT_GE(threads_of(8, 1), 1);
  EXPECT_LE(threads_of(8, 1), 8);
  EXPECT_GE(threads_of(8, 1000), 1);
}

TEST(CpuBinding, Thread_IsBoundAndSetFreeAgain) {
  const std::vector<int> all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  {
    const CpuBinding binding({all.back()});
    EXPECT_EQ(allowed_cpus(), std::vector<int>{all.back()});
    std::vector<int> of_child;
    std::thread([&] { of_child = allowed_cpus(); }).join();
    EXPECT_EQ(of_child, std::vector<int>{all.back()});
  }
  EXPECT_EQ(allowed_cpus(), all);
}

TEST(CpuBinding, LocalRanks_GetProcessorsOfTheirOwn) {
  const std::vector<int> all = allowed_cpus();
  const int ranks = static_cast<int>(std::min<size_t>(all.size(), 2));
  std::vector<std::vector<int>> cpus(static_cast<size_t>(ranks));
  std::vector<int> threads(static_cast<size_t>(ranks));
  run_local_ranks(ranks, {}, [&](World& world) {
    cpus[static_cast<size_t>(world.rank())] = allowed_cpus();
    threads[static_cast<size_t>(world.rank())] = world.context().num_threads();
  });
  std::multiset<int> seen;
  for (int r = 0; r < ranks; ++r) {
    const auto& mine = cpus[static_cast<size_t>(r)];
    seen.insert(mine.begin(), mine.end());
    EXPECT_EQ(threads[static_cast<size_t>(r)], static_cast<int>(mine.size()));
  }
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
  EXPECT_EQ(seen.size(), all.size());
  EXPECT_EQ(allowed_cpus(), all);
}

}  // namespace cpu_share_test
}  // namespace zinc::comm
