// A rank is late, gone, wrong or fails: the right rank is named, and all ranks wake up.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "comm/single/single.h"
#include "tests/comm/rank_data.h"
#include "tests/comm/rank_errors.h"
#include "tests/core/await.h"

namespace zinc::comm::testing {
namespace faults_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Way { direct, staged };

class Faults : public ::testing::TestWithParam<std::tuple<Way, ContextOptions::Execution>> {
 protected:
  std::map<int, std::string> errors_of(int size, milliseconds deadline,
                                       const std::function<void(const Rank&)>& body) {
    const auto [way, execution] = GetParam();
    return errors_of_ranks(
        make_local_group(size, way == Way::staged ? 1024 : 0),
        {.num_threads = 1,
         .bind_threads = false,
         .execution = execution,
         .shuffle_seed = 3,
         .deadline = deadline},
        [&](World& world) { body({.group = world.communicator(), .context = world.context()}); });
  }
};

TEST_P(Faults, Deadline_SleepingRank_IsNamed) {
  std::atomic<int> have_given_up = 0;
  const auto errors = errors_of(3, seconds(60), [&](const Rank& rank) {
    all_gather(rank, 10);
    rank.group.set_deadline(seconds(1));
    if (rank.rank() == 1) await([&] { return have_given_up == 2; });
    try {
      all_gather(rank, 10);
    } catch (const CommError&) {
      ++have_given_up;
      throw;
    }
  });
  ASSERT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text,
                AllOf(HasSubstr("all_gather"), HasSubstr("waiting for rank 1"), HasSubstr("1 s")));
    if (rank != 1) {
      EXPECT_THAT(text, HasSubstr("#2"));
    }
  }
}

// Rank 0 waits for both others, but rank 1 waits for rank 2 as well, in an earlier collective of
// another group, which rank 0 does not know.
TEST_P(Faults, Deadline_RankThatWaitsItself_IsNotBlamed) {
  std::atomic<bool> one_waits = false;
  std::atomic<bool> zero_has_given_up = false;
  const auto errors = errors_of(3, seconds(60), [&](const Rank& rank) {
    const auto pair = rank.group.split(rank.rank() == 0 ? -1 : 0, 0);
    rank.group.set_deadline(seconds(1));
    if (rank.rank() == 1) {
      one_waits = true;
      all_gather({*pair, rank.context}, 5);
    }
    if (rank.rank() == 2) await([&] { return zero_has_given_up.load(); });
    if (rank.rank() == 0) await([&] { return one_waits.load(); });
    try {
      all_gather(rank, 5);
    } catch (const CommError&) {
      if (rank.rank() == 0) zero_has_given_up = true;
      throw;
    }
  });
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_THAT(errors.at(0), AllOf(HasSubstr("waiting for rank 2"), Not(HasSubstr("rank 1"))));
  EXPECT_THAT(errors.at(1), HasSubstr("waiting for rank 2"));
}

class FaultsPace : public Faults {};

// A machine that stands still for a second is no moving rank.
TEST_P(FaultsPace, Deadline_SlowButMovingRank_IsNoFault) {
  const auto errors = errors_of(3, milliseconds(1400), [](const Rank& rank) {
    for (int k = 0; k < 5; ++k) {
      if (rank.rank() == 2) std::this_thread::sleep_for(milliseconds(400));
      all_gather(rank, 1000);
    }
  });
  EXPECT_TRUE(errors.empty()) << errors.begin()->second;
}

TEST_P(Faults, Abort_WhileOthersWait_WakesAll) {
  const auto begin = Clock::now();
  const auto errors = errors_of(4, seconds(60), [](const Rank& rank) {
    if (rank.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(50));
      rank.group.abort("the operator said so");
    }
    all_gather(rank, 1000);
  });
  EXPECT_EQ(errors.size(), 4u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("all_gather"), HasSubstr("rank 3: the operator said so")));
  }
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

TEST_P(Faults, Abort_InAGroup_ReachesTheWorldAndOtherGroups) {
  const auto errors = errors_of(4, seconds(60), [](const Rank& rank) {
    const auto pair = rank.group.split(rank.rank() / 2, 0);
    if (rank.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(30));
      pair->abort("enough");
      return;
    }
    // Rank 2 waits for rank 3 in their pair, rank 3 for rank 0 in the world.
    all_gather(rank.rank() == 2 ? Rank{*pair, rank.context} : rank, 4);
  });
  EXPECT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) EXPECT_THAT(text, HasSubstr("rank 0: enough"));
}

TEST_P(Faults, Sizes_ThatDiffer_FailOnAllRanks) {
  const auto errors = errors_of(3, seconds(60), [](const Rank& rank) {
    all_gather(rank, 3);
    all_gather(rank, rank.rank() == 1 ? 20'000 : 10'000);
  });
  ASSERT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("did not issue the same collective"),
                            HasSubstr("ranks 0 and 2: all_gather #2 (10000 x f32)"),
                            HasSubstr("rank 1: all_gather #2 (20000 x f32)")));
  }
}

TEST_P(Faults, Operations_ThatDiffer_FailOnAllRanks) {
  const auto errors = errors_of(2, seconds(60), [](const Rank& rank) {
    if (rank.rank() == 0) return all_gather(rank, 8);
    std::vector<bf16> x(8);
    GuardedWorkspace workspace(rank.group, Collective::all_reduce, 16, DType::bf16);
    rank.group.all_reduce({view_of(x), workspace.view()}, rank.reduce()).wait();
  });
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0: all_gather #1 (8 x f32)"),
                            HasSubstr("rank 1: all_reduce #1 (8 x bf16)")));
  }
}

TEST_P(Faults, Roots_ThatDiffer_FailOnAllRanks) {
  const auto errors = errors_of(3, seconds(60), [](const Rank& rank) {
    std::vector<float> x(8);
    rank.group.broadcast({view_of(x), rank.rank() == 2 ? 1 : 0}, rank.gather()).wait();
  });
  EXPECT_EQ(errors.size(), 3u);
}

TEST_P(Faults, CountsOfOnePair_ThatDiffer_FailOnTheReceiverAndReachAll) {
  for (const int64_t expected : {0, 4}) {
    const auto errors = errors_of(3, seconds(60), [expected](const Rank& rank) {
      exchange_with_a_wrong_count(rank, expected);
    });
    ASSERT_EQ(errors.size(), 3u);
    EXPECT_THAT(errors.at(1), HasSubstr(str("all_to_all #1 (5 x f32): rank 0 sends 20 bytes to "
                                            "rank 1, which expects ",
                                            4 * expected)));
    for (const auto& [rank, text] : errors) {
      EXPECT_THAT(text, HasSubstr("rank 0 sends 20 bytes to rank 1")) << rank;
    }
  }
}

TEST_P(Faults, LargestCounts_ThatDiffer_FailOnAllRanks) {
  const auto errors = errors_of(3, seconds(60), [](const Rank& rank) {
    std::vector<float> in(6), out(6);
    const AllToAllCounts counts{
        .sent = {2, 2, 2}, .received = {2, 2, 2}, .largest = rank.rank() == 1 ? 9 : 8};
    rank.group.all_to_all({view_of(in), view_of(out), &counts}, rank.gather()).wait();
  });
  ASSERT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("ranks 0 and 2: all_to_all #1 (8 x f32)"),
                            HasSubstr("rank 1: all_to_all #1 (9 x f32)")));
  }
}

TEST_P(Faults, Messages_OfDifferentSize_FailOnBothSides) {
  const auto errors = errors_of(2, seconds(60), [](const Rank& rank) {
    std::vector<float> x(rank.rank() == 0 ? 5000 : 4999);
    if (rank.rank() == 0) {
      rank.group.send(view_of(x), 1, 9, rank.gather()).wait();
    } else {
      rank.group.receive(view_of(x), 0, 9, rank.gather()).wait();
    }
  });
  ASSERT_TRUE(errors.contains(1));
  EXPECT_THAT(errors.at(1), AllOf(HasSubstr("receive #1 from rank 0 with tag 9 (19996 bytes)"),
                                  HasSubstr("has 20000 bytes")));
  EXPECT_TRUE(errors.contains(0));
}

TEST_P(Faults, Receive_WithoutASend_MissesItsDeadline) {
  std::atomic<bool> one_has_given_up = false;
  const auto errors = errors_of(2, milliseconds(100), [&](const Rank& rank) {
    if (rank.rank() == 0) {
      await([&] { return one_has_given_up.load(); });
      return all_gather(rank, 1);
    }
    std::vector<float> x(4);
    try {
      rank.group.receive(view_of(x), 0, 1, rank.gather()).wait();
    } catch (const CommError&) {
      one_has_given_up = true;
      throw;
    }
  });
  EXPECT_THAT(errors.at(1), AllOf(HasSubstr("receive #1"), HasSubstr("waiting for rank 0")));
  EXPECT_THAT(errors.at(0), HasSubstr("aborted communicator"));
}

TEST_P(Faults, RankThatLeaves_IsNamedAtOnce) {
  const auto begin = Clock::now();
  const auto errors = errors_of(3, seconds(60), [](const Rank& rank) {
    all_gather(rank, 7);
    if (rank.rank() != 1) all_gather(rank, 7);
  });
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(errors.at(0), HasSubstr("rank 1 has left the group"));
  EXPECT_THAT(errors.at(2), HasSubstr("rank 1 has left the group"));
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

TEST_P(Faults, AfterAnError_EveryCallThrows) {
  errors_of(2, seconds(60), [](const Rank& rank) {
    const auto copy = rank.group.split(0, 0);
    rank.group.abort("over");
    std::vector<float> x(2);
    const auto stream = rank.gather();
    EXPECT_THROW(rank.group.barrier(stream), CommError);
    EXPECT_THROW(rank.group.broadcast({view_of(x), 0}, stream), CommError);
    EXPECT_THROW(rank.group.send(view_of(x), 1 - rank.rank(), 0, stream), CommError);
    EXPECT_THROW(rank.group.split(0, 0), CommError);
    EXPECT_THROW(copy->barrier(stream), CommError);
  });
}

// Ranks that fail at random moments while their peers read their memory. Sanitizers see to it that
// nobody reads a buffer whose owner has left.
TEST_P(Faults, Abort_AtRandomMoments_LeavesNoReaderBehind) {
  for (int round = 0; round < 20; ++round) {
    errors_of(3, seconds(60), [round](const Rank& rank) {
      const auto patience = std::chrono::microseconds(draw(rank.rank(), round, 50) % 3000);
      const auto end = Clock::now() + patience;
      while (Clock::now() < end || rank.rank() != round % 3) {
        auto in = std::make_unique<std::vector<float>>(30'000, 1.0f);
        auto out = std::make_unique<std::vector<float>>(10'000);
        GuardedWorkspace workspace(rank.group, Collective::reduce_scatter, 120'000, DType::f32);
        rank.group
            .reduce_scatter(
                {.in = view_of(*in), .out = view_of(*out), .workspace = workspace.view()},
                rank.reduce())
            .wait();
      }
      rank.group.abort("time is up");
      throw CommError("time is up");
    });
  }
}

const auto kWays = ::testing::Combine(
    ::testing::Values(Way::direct, Way::staged),
    ::testing::Values(ContextOptions::Execution::inline_all, ContextOptions::Execution::concurrent,
                      ContextOptions::Execution::shuffled));
const auto name_of_ways = [](const auto& info) {
  const auto execution = static_cast<int>(std::get<1>(info.param));
  return (std::get<0>(info.param) == Way::direct ? "direct" : "staged") + std::to_string(execution);
};
INSTANTIATE_TEST_SUITE_P(All, Faults, kWays, name_of_ways);
INSTANTIATE_TEST_SUITE_P(All, FaultsPace, kWays, name_of_ways);

TEST(RunLocalRanks, ExceptionOfOneRank_IsThrownWithItsRank) {
  const auto begin = Clock::now();
  try {
    run_local_ranks(3, {.num_threads = 1}, [](World& world) {
      std::vector<float> x(4);
      if (world.rank() == 2) throw DataError("shard 7 is broken");
      world.communicator().broadcast({view_of(x), 2}, world.context().compute()).wait();
    });
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "rank 2: shard 7 is broken");
  }
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

TEST(RunLocalRanks, Ranks_HaveContextsOfTheirOwn) {
  std::atomic<int> sum = 0;
  run_local_ranks(3, {.seed = 5, .num_threads = 1}, [&](World& world) {
    EXPECT_EQ(&Context::current(), &world.context());
    EXPECT_EQ(world.info().source, "threads");
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.context().num_threads(), 1);
    sum += world.rank();
  });
  EXPECT_EQ(sum, 3);
}

TEST(RunLocalRanks, UnwindingWorld_TellsItsPeers) {
  auto group = make_local_group(2);
  std::string text;
  std::thread peer([&] {
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    std::vector<float> x(4);
    try {
      group[1]->broadcast({view_of(x), 0}, context.compute());
    } catch (const CommError& error) {
      text = error.what();
    }
  });
  try {
    World world({.rank = 0, .size = 2}, std::move(group[0]),
                std::make_unique<Context>(ContextOptions{.num_threads = 1}));
    throw InvalidArgument("no such layer");
  } catch (const InvalidArgument&) {
  }
  peer.join();
  EXPECT_THAT(text, HasSubstr("rank 0: ends because of an exception"));
}

}  // namespace faults_test
}  // namespace zinc::comm::testing
