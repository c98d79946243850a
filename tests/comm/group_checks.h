// tests/comm/group_checks.h: what holds beyond the data: order, streams, groups, counters, errors.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/partition.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {

// Clocks of threads and of processes of one host are one clock.
inline void Barrier_SlowRank_HoldsAllBack(const Rank& rank) {
  using Clock = std::chrono::steady_clock;
  for (int slow = 0; slow < rank.size(); ++slow) {
    if (rank.rank() == slow) std::this_thread::sleep_for(std::chrono::milliseconds(15));
    std::vector<int64_t> entered{Clock::now().time_since_epoch().count()};
    rank.group.barrier(rank.gather()).wait();
    const int64_t left = Clock::now().time_since_epoch().count();
    std::vector<int64_t> all(static_cast<size_t>(rank.size()));
    rank.group.all_gather({view_of(entered), view_of(all)}, rank.gather()).wait();
    EXPECT_LE(*std::ranges::max_element(all), left) << "a rank passed before the last one came";
  }
}

// Both streams at once, each with its own random delays on every rank, so that ranks come to the
// collectives in different orders.
inline void Collectives_OnTwoStreamsWithDelays_MatchByIssue(const Rank& rank) {
  constexpr int kRounds = 40;
  struct Round {
    int64_t n = 0;
    std::vector<float> shard, gathered, summed;
    std::unique_ptr<GuardedWorkspace> workspace;
  };
  const bool delays = rank.context.stream(StreamRole::gather)->kind() == StreamKind::worker;
  std::deque<Round> rounds;
  std::vector<Work> works;
  for (int k = 0; k < kRounds; ++k) {
    Round& round = rounds.emplace_back();
    round.n = static_cast<int64_t>(draw(0, k, 30) % 3000);
    const auto salt = static_cast<uint64_t>(100 + k);
    round.shard = values_of<float>(rank.rank(), round.n, salt);
    round.summed = values_of<float>(rank.rank(), round.n, salt + 1000);
    round.gathered.resize(static_cast<size_t>(round.n * rank.size()));
    round.workspace = std::make_unique<GuardedWorkspace>(rank.group, Collective::all_reduce,
                                                         round.n * 4, DType::f32);
    const StreamRef streams[] = {rank.gather(), rank.reduce()};
    for (int s = 0; s < 2; ++s) {
      const auto delay = std::chrono::microseconds(draw(rank.rank(), k * 2 + s, 31) % 500);
      if (delays) streams[s].submit("delay", [delay] { std::this_thread::sleep_for(delay); });
    }
    const bool swapped = draw(0, k, 32) % 2 != 0;  // the same on every rank
    for (int s = 0; s < 2; ++s) {
      if ((s == 0) != swapped) {
        works.push_back(
            rank.group.all_gather({view_of(round.shard), view_of(round.gathered)}, streams[0]));
      } else {
        works.push_back(
            rank.group.all_reduce({view_of(round.summed), round.workspace->view()}, streams[1]));
      }
    }
  }
  for (const Work& work : works) work.wait();
  for (int k = 0; k < kRounds; ++k) {
    const Round& round = rounds[static_cast<size_t>(k)];
    const auto salt = static_cast<uint64_t>(100 + k);
    for (int r = 0; r < rank.size(); ++r) {
      const auto theirs = values_of<float>(r, round.n, salt);
      const auto begin = round.gathered.begin() + r * round.n;
      ASSERT_TRUE(std::equal(theirs.begin(), theirs.end(), begin)) << "round " << k;
    }
    for (int64_t i = 0; i < round.n; ++i) {
      ASSERT_TRUE(same_bits(round.summed[static_cast<size_t>(i)],
                            sum_of_ranks<float>(rank.size(), i, salt + 1000)))
          << "round " << k << " element " << i;
    }
  }
}

// More collectives in the queues than a rank has desks.
inline void Collectives_ManyInFlight_AllComplete(const Rank& rank) {
  constexpr int kMany = 300;
  std::deque<std::vector<int32_t>> out;
  std::vector<int32_t> shard{rank.rank()};
  Work last;
  for (int k = 0; k < kMany; ++k) {
    auto& target = out.emplace_back(static_cast<size_t>(rank.size()), -1);
    last = rank.group.all_gather({view_of(shard), view_of(target)}, rank.gather());
  }
  last.wait();
  for (const auto& target : out) {
    for (int r = 0; r < rank.size(); ++r) ASSERT_EQ(target[static_cast<size_t>(r)], r);
  }
}

// Work on another stream that waits for a collective sees its result.
inline void Work_WaitOn_OrdersAnotherStream(const Rank& rank) {
  std::vector<int32_t> shard{rank.rank() + 1};
  std::vector<int32_t> all(static_cast<size_t>(rank.size()), 0);
  int64_t sum = 0;
  const Work work = rank.group.all_gather({view_of(shard), view_of(all)}, rank.gather());
  work.wait_on(rank.reduce());
  rank.reduce().submit("sum", [&] {
    for (const int32_t x : all) sum += x;
  });
  rank.reduce()->synchronize();
  EXPECT_EQ(sum, rank.size() * (rank.size() + 1) / 2);
}

inline void check_group_sum(Communicator& group, const Rank& rank, int64_t expected) {
  std::vector<float> x{static_cast<float>(rank.rank() + 1)};
  GuardedWorkspace workspace(group, Collective::all_reduce, 4, DType::f32);
  group.all_reduce({view_of(x), workspace.view()}, rank.reduce()).wait();
  EXPECT_EQ(x[0], static_cast<float>(expected));
}

inline void Split_ByColourAndKey_FormsWorkingGroups(const Rank& rank) {
  const int size = rank.size();
  const auto odd = rank.group.split(rank.rank() % 2, -rank.rank());  // keys turn the order round
  ASSERT_NE(odd, nullptr);
  int64_t members = 0;
  int64_t sum = 0;
  for (int r = rank.rank() % 2; r < size; r += 2) {
    ++members;
    sum += r + 1;
  }
  EXPECT_EQ(odd->size(), members);
  EXPECT_EQ(odd->rank(), odd->size() - 1 - rank.rank() / 2);
  EXPECT_EQ(odd->backend(), rank.group.backend());
  check_group_sum(*odd, rank, sum);

  const auto without_first = rank.group.split(rank.rank() == 0 ? -1 : 5, 0);
  EXPECT_EQ(without_first == nullptr, rank.rank() == 0);
  if (without_first != nullptr) {
    EXPECT_EQ(without_first->size(), size - 1);
    EXPECT_EQ(without_first->rank(), rank.rank() - 1);
    check_group_sum(*without_first, rank, size * (size + 1) / 2 - 1);
  }

  const auto nested = odd->split(0, 0);
  ASSERT_NE(nested, nullptr);
  check_group_sum(*nested, rank, sum);
  check_group_sum(rank.group, rank, size * (size + 1) / 2);  // the parent goes on
}

inline void Counters_AfterEveryCollective_AreExact(const Rank& rank) {
  const int64_t size = rank.size();
  const int64_t n = 1001;  // not a multiple of the world, but for 1
  int64_t sent = rank.group.bytes_sent();
  int64_t received = rank.group.bytes_received();
  const auto expect_moved = [&](const char* what, int64_t out, int64_t in) {
    EXPECT_EQ(rank.group.bytes_sent() - sent, out) << what;
    EXPECT_EQ(rank.group.bytes_received() - received, in) << what;
    sent = rank.group.bytes_sent();
    received = rank.group.bytes_received();
  };
  std::vector<bf16> shard(static_cast<size_t>(n));
  std::vector<bf16> whole(static_cast<size_t>(n * size));
  std::vector<bf16> other(whole.size());
  GuardedWorkspace workspace(rank.group, Collective::reduce_scatter, n * size * 2, DType::bf16);

  rank.group.all_gather({view_of(shard), view_of(whole)}, rank.gather()).wait();
  expect_moved("all_gather", (size - 1) * n * 2, (size - 1) * n * 2);
  rank.group
      .reduce_scatter({.in = view_of(whole), .out = view_of(shard), .workspace = workspace.view()},
                      rank.reduce())
      .wait();
  expect_moved("reduce_scatter", (size - 1) * n * 2, (size - 1) * n * 2);
  rank.group.all_to_all({view_of(whole), view_of(other)}, rank.gather()).wait();
  expect_moved("all_to_all", (size - 1) * n * 2, (size - 1) * n * 2);
  // From rank a to rank b go 5 a + b elements, of which the rank's own block moves nowhere.
  AllToAllCounts counts{.largest = 6 * (size - 1)};
  int64_t out = 0, in = 0;
  for (int64_t r = 0; r < size; ++r) {
    counts.sent.push_back(5 * rank.rank() + r);
    counts.received.push_back(5 * r + rank.rank());
    out += counts.sent.back();
    in += counts.received.back();
  }
  const int64_t own = 6 * rank.rank();
  rank.group.all_to_all({view_of(whole, 0, out), view_of(other, 0, in), &counts}, rank.gather())
      .wait();
  expect_moved("all_to_all, uneven", 2 * (out - own), 2 * (in - own));
  std::vector<bf16> shifted(shard.size());
  rank.group.shift({view_of(shard), view_of(shifted)}, rank.gather()).wait();
  const int64_t moved = size == 1 ? 0 : n * 2;
  expect_moved("shift", moved, moved);
  rank.group.barrier(rank.gather()).wait();
  expect_moved("barrier", 0, 0);

  // A part of ceil(n / size) elements, the last ones shorter. Reduce: all but the own part goes
  // out, the own part comes in from everybody; then the own part goes to everybody.
  const int64_t mine = part_of(n, rank.size(), rank.rank()).count;
  rank.group.all_reduce({view_of(shard), workspace.view()}, rank.reduce()).wait();
  expect_moved("all_reduce", 2 * (n - mine + (size - 1) * mine),
               2 * ((size - 1) * mine + n - mine));

  rank.group.broadcast({view_of(shard), 0}, rank.gather()).wait();
  if (rank.rank() == 0) {
    expect_moved("broadcast, root", 2 * (n - mine + (size - 1) * mine), 0);
  } else {
    expect_moved("broadcast", 2 * (size - 2) * mine, 2 * n);
  }
}

inline void AllToAll_CountsThatDoNotFit_ThrowAtTheCall(const Rank& rank) {
  const auto size = static_cast<size_t>(rank.size());
  const auto own = static_cast<size_t>(rank.rank());
  std::vector<float> in(8 * size), out(8 * size);
  const AllToAllCounts right{.sent = std::vector<int64_t>(size, 8),
                             .received = std::vector<int64_t>(size, 8),
                             .largest = 8};
  const auto expect_refused = [&](const AllToAllCounts& counts, const char* why) {
    std::string text = "nothing was thrown";
    try {
      rank.group.all_to_all({view_of(in), view_of(out), &counts}, rank.gather()).wait();
    } catch (const InvalidArgument& error) {
      text = error.what();
    }
    EXPECT_NE(text.find(why), std::string::npos) << text << ", expected: " << why;
  };
  const auto changed = [&](const auto& change) {
    AllToAllCounts counts = right;
    change(counts);
    return counts;
  };
  expect_refused(changed([](auto& c) { c.sent.push_back(0); }), "counts.sent must have");
  expect_refused(changed([](auto& c) { c.received.pop_back(); }), "counts.received must have");
  expect_refused(changed([](auto& c) { c.sent[0] = -1; }), "counts.sent[0] must be in [0, ");
  expect_refused(changed([](auto& c) { c.largest = 7; }), "[0, 7], not 8");
  expect_refused(changed([](auto& c) { c.sent[0] = 7; }), "the counts of sent add up to ");
  expect_refused(changed([](auto& c) { c.received[0] = 7; }), "the counts of received add up to ");
  expect_refused(changed([](auto& c) {
                   c.largest = int64_t{1} << 60;
                   for (int64_t& count : c.sent) count = c.largest;
                 }),
                 "add up to more than the ");
  expect_refused(changed([](auto& c) { c.largest = int64_t{1} << 62; }), "counts.largest is no");
  if (size > 1) {
    const auto moves_two = [&](auto& c) {
      c.largest = 10;
      c.sent[own] -= 2;
      c.sent[(own + 1) % size] += 2;
    };
    expect_refused(changed(moves_two), "the rank sends itself 6 elements, but receives 8");
  }
  // The group goes on.
  rank.group.all_to_all({view_of(in), view_of(out), &right}, rank.gather()).wait();
}

// A caller's mistake throws at the call and costs nothing: the group goes on.
inline void Arguments_ThatDoNotFit_ThrowAtTheCall(const Rank& rank) {
  const int64_t size = rank.size();
  std::vector<float> shard(8);
  std::vector<float> whole(static_cast<size_t>(8 * size));
  std::vector<double> wide(static_cast<size_t>(8 * size));
  std::vector<int32_t> integers(8);
  GuardedWorkspace workspace(rank.group, Collective::reduce_scatter, 8 * size * 4, DType::f32);
  const auto stream = rank.gather();
  EXPECT_THROW(rank.group.all_gather({view_of(shard, 0, 7), view_of(whole)}, stream),
               InvalidArgument);
  EXPECT_THROW(rank.group.all_gather({view_of(shard), view_of(wide)}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.all_gather({view_of(whole, 1, 8 * size - 1), view_of(whole)}, stream),
               InvalidArgument);
  EXPECT_THROW(rank.group.all_reduce({view_of(integers), workspace.view()}, stream),
               InvalidArgument);
  EXPECT_THROW(
      rank.group.reduce_scatter(
          {.in = view_of(wide), .out = view_of(shard), .workspace = workspace.view()}, stream),
      InvalidArgument);
  if (rank.group.workspace_bytes(Collective::all_reduce, 32, DType::f32) > 0) {
    EXPECT_THROW(rank.group.all_reduce({view_of(shard), View()}, stream), InvalidArgument);
  }
  EXPECT_THROW(rank.group.broadcast({view_of(shard), rank.size()}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.broadcast({view_of(shard), -1}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.all_to_all({view_of(whole), view_of(whole)}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.shift({view_of(shard), view_of(shard)}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.shift({view_of(shard), view_of(integers)}, stream), InvalidArgument);
  EXPECT_THROW(rank.group.send(view_of(shard), rank.rank(), 0, stream), InvalidArgument);
  EXPECT_THROW(rank.group.receive(view_of(shard), rank.size(), 0, stream), InvalidArgument);
  if (size > 1) {
    const int other = (rank.rank() + 1) % rank.size();
    EXPECT_THROW(rank.group.send(view_of(shard), other, kNumMessageTags, stream), InvalidArgument);
  }
  const View on_meta(shard.data(), DType::f32, Shape{8}, Device{.meta = true});
  EXPECT_THROW(rank.group.broadcast({on_meta, 0}, stream), InvalidArgument);
  check_group_sum(rank.group, rank, size * (size + 1) / 2);
}

}  // namespace zinc::comm::testing
