// tests/comm/data_checks.h: every collective's result, to the bit. Every rank calls the same checks
// in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {

// None, one, odd ones.
inline constexpr int64_t kSizes[] = {0, 1, 2, 3, 64, 1001, 9973};

inline void AllGather_AnyDTypeAndSize_MatchesConcatenation(const Rank& rank) {
  for_every_dtype([&]<class T>() {
    for (const int64_t n : kSizes) {
      std::vector<T> expected;
      for (int r = 0; r < rank.size(); ++r) {
        const auto part = values_of<T>(r, n, 1);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      auto shard = values_of<T>(rank.rank(), n, 1);
      std::vector<T> out(expected.size());
      rank.group.all_gather({view_of(shard), view_of(out)}, rank.gather()).wait();
      EXPECT_EQ(first_difference(out, expected), -1) << zinc::name_of(kDTypeOf<T>) << " n " << n;

      std::vector<T> in_place(expected.size());
      std::ranges::copy(shard, in_place.begin() + rank.rank() * n);
      const View own = view_of(in_place, rank.rank() * n, n);
      rank.group.all_gather({own, view_of(in_place)}, rank.gather()).wait();
      EXPECT_EQ(first_difference(in_place, expected), -1)
          << zinc::name_of(kDTypeOf<T>) << " in place, n " << n;
    }
  });
}

// The rank's part of the sum; `before` is what accumulate adds to.
template <class T, class Out>
std::vector<Out> expected_part(const Rank& rank, int64_t n, uint64_t salt,
                               const std::vector<Out>* before) {
  std::vector<Out> expected(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto place = static_cast<size_t>(i);
    const auto sum = sum_of_ranks<T>(rank.size(), rank.rank() * n + i, salt);
    expected[place] =
        Out(before == nullptr ? sum : static_cast<AccumulatorOf<T>>((*before)[place]) + sum);
  }
  return expected;
}

template <class T, class Out>
void check_reduce_scatter(const Rank& rank, int64_t n, bool accumulate) {
  const uint64_t salt = 2;
  auto in = values_of<T>(rank.rank(), n * rank.size(), salt);
  const auto in_before = in;
  auto out = values_of<Out>(rank.rank(), n, salt + 1);
  const auto expected = expected_part<T, Out>(rank, n, salt, accumulate ? &out : nullptr);
  GuardedWorkspace workspace(rank.group, Collective::reduce_scatter, view_of(in).bytes(),
                             kDTypeOf<T>);
  rank.group
      .reduce_scatter({.in = view_of(in),
                       .out = view_of(out),
                       .accumulate = accumulate,
                       .workspace = workspace.view()},
                      rank.reduce())
      .wait();
  EXPECT_EQ(first_difference(out, expected), -1)
      << zinc::name_of(kDTypeOf<T>) << " to " << zinc::name_of(kDTypeOf<Out>) << " n " << n
      << " accumulate " << accumulate;
  EXPECT_EQ(first_difference(in, in_before), -1) << "the input was changed";
  EXPECT_TRUE(workspace.guards_hold());
}

inline void ReduceScatter_AnyFloat_IsTheWrittenOutTree(const Rank& rank) {
  for_every_float([&]<class T>() {
    for (const int64_t n : kSizes) {
      for (const bool accumulate : {false, true}) {
        check_reduce_scatter<T, T>(rank, n, accumulate);
        if constexpr (sizeof(T) == 2) check_reduce_scatter<T, float>(rank, n, accumulate);
      }
    }
  });
}

inline void ReduceScatter_InPlace_IsTheWrittenOutTree(const Rank& rank) {
  for_every_float([&]<class T>() {
    for (const int64_t n : kSizes) {
      auto in = values_of<T>(rank.rank(), n * rank.size(), 4);
      auto expected = in;
      std::ranges::copy(expected_part<T, T>(rank, n, 4, nullptr),
                        expected.begin() + rank.rank() * n);
      GuardedWorkspace workspace(rank.group, Collective::reduce_scatter, view_of(in).bytes(),
                                 kDTypeOf<T>);
      rank.group
          .reduce_scatter({.in = view_of(in),
                           .out = view_of(in, rank.rank() * n, n),
                           .workspace = workspace.view()},
                          rank.reduce())
          .wait();
      EXPECT_EQ(first_difference(in, expected), -1) << zinc::name_of(kDTypeOf<T>) << " n " << n;
    }
  });
}

inline void AllReduce_AnyFloatAndSize_IsTheWrittenOutTree(const Rank& rank) {
  for_every_float([&]<class T>() {
    for (const int64_t n : kSizes) {
      auto inout = values_of<T>(rank.rank(), n, 5);
      std::vector<T> expected(inout.size());
      for (int64_t i = 0; i < n; ++i) {
        expected[static_cast<size_t>(i)] = T(sum_of_ranks<T>(rank.size(), i, 5));
      }
      GuardedWorkspace workspace(rank.group, Collective::all_reduce, view_of(inout).bytes(),
                                 kDTypeOf<T>);
      rank.group.all_reduce({.inout = view_of(inout), .workspace = workspace.view()}, rank.reduce())
          .wait();
      EXPECT_EQ(first_difference(inout, expected), -1) << zinc::name_of(kDTypeOf<T>) << " n " << n;
      EXPECT_TRUE(workspace.guards_hold());
    }
  });
}

// The data can tell orders apart: were it not so, the three checks above would pass on any sum.
inline void ReduceScatter_ItsData_TellsOrdersApart(const Rank& rank) {
  if (rank.size() < 3) return;
  int64_t differ = 0;
  constexpr int64_t kElements = 1000;
  for (int64_t i = 0; i < kElements; ++i) {
    float backwards = value_of<float>(rank.size() - 1, i, 2);
    for (int r = rank.size() - 2; r >= 0; --r) backwards += value_of<float>(r, i, 2);
    if (!same_bits(backwards, sum_of_ranks<float>(rank.size(), i, 2))) ++differ;
  }
  EXPECT_GT(differ, kElements / 20);
}

// Small integers: every partial sum is exact in every dtype, so a rank that is left out, counted
// twice or swapped with another one shows whatever the order.
inline void AllReduce_CraftedIntegers_AreExact(const Rank& rank) {
  for_every_float([&]<class T>() {
    constexpr int64_t kElements = 517;
    std::vector<T> inout;
    for (int64_t i = 0; i < kElements; ++i) {
      inout.push_back(T(static_cast<float>((1 << rank.rank()) * (i % 2 == 0 ? 1 : -1))));
    }
    GuardedWorkspace workspace(rank.group, Collective::all_reduce, view_of(inout).bytes(),
                               kDTypeOf<T>);
    rank.group.all_reduce({view_of(inout), workspace.view()}, rank.reduce()).wait();
    const auto total = static_cast<float>((1 << rank.size()) - 1);
    for (int64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(static_cast<float>(inout[static_cast<size_t>(i)]), i % 2 == 0 ? total : -total);
    }
  });
}

// A backend's own sums, in whatever order, where it has them: exact on small integers.
inline void NativeSums_CraftedIntegers_AreExact(const Rank& rank) {
  rank.group.set_reduce_algorithm(ReduceAlgorithm::native);
  const auto total = static_cast<float>((1 << rank.size()) - 1);
  for_every_float([&]<class T>() {
    for (const int64_t n : kSizes) {
      const std::vector<T> ones(static_cast<size_t>(n * rank.size()),
                                T(static_cast<float>(1 << rank.rank())));
      auto inout = ones;
      GuardedWorkspace workspace(rank.group, Collective::all_reduce, view_of(inout).bytes(),
                                 kDTypeOf<T>);
      rank.group.all_reduce({view_of(inout), workspace.view()}, rank.reduce()).wait();
      EXPECT_EQ(first_difference(inout, std::vector<T>(inout.size(), T(total))), -1)
          << "all_reduce " << zinc::name_of(kDTypeOf<T>) << " n " << n;
      auto in = ones;
      std::vector<float> out(static_cast<size_t>(n), 0.5f);
      GuardedWorkspace room(rank.group, Collective::reduce_scatter, view_of(in).bytes(),
                            kDTypeOf<T>);
      if constexpr (sizeof(T) <= 4) {
        rank.group
            .reduce_scatter({.in = view_of(in),
                             .out = view_of(out),
                             .accumulate = true,
                             .workspace = room.view()},
                            rank.reduce())
            .wait();
        EXPECT_EQ(first_difference(out, std::vector<float>(out.size(), total + 0.5f)), -1)
            << "reduce_scatter " << zinc::name_of(kDTypeOf<T>) << " n " << n;
      }
      rank.group
          .reduce_scatter(
              {.in = view_of(in), .out = view_of(in, rank.rank() * n, n), .workspace = room.view()},
              rank.gather())
          .wait();
      auto expected = ones;
      std::fill_n(expected.begin() + rank.rank() * n, n, T(total));
      EXPECT_EQ(first_difference(in, expected), -1) << "in place";
      EXPECT_TRUE(workspace.guards_hold() && room.guards_hold());
    }
  });
  rank.group.set_reduce_algorithm(ReduceAlgorithm::ordered);
}

inline void Broadcast_FromEveryRoot_CopiesItsBytes(const Rank& rank) {
  for_every_dtype([&]<class T>() {
    for (int root = 0; root < rank.size(); ++root) {
      for (const int64_t n : kSizes) {
        auto inout = values_of<T>(rank.rank(), n, 6);
        rank.group.broadcast({view_of(inout), root}, rank.gather()).wait();
        EXPECT_EQ(first_difference(inout, values_of<T>(root, n, 6)), -1)
            << zinc::name_of(kDTypeOf<T>) << " n " << n << " root " << root;
      }
    }
  });
}

inline void AllToAll_AnyDTypeAndSize_TransposesBlocks(const Rank& rank) {
  for_every_dtype([&]<class T>() {
    for (const int64_t n : kSizes) {
      auto in = values_of<T>(rank.rank(), n * rank.size(), 7);
      std::vector<T> expected;
      for (int r = 0; r < rank.size(); ++r) {
        const auto theirs = values_of<T>(r, n * rank.size(), 7);
        expected.insert(expected.end(), theirs.begin() + rank.rank() * n,
                        theirs.begin() + (rank.rank() + 1) * n);
      }
      std::vector<T> out(in.size());
      rank.group.all_to_all({view_of(in), view_of(out)}, rank.gather()).wait();
      EXPECT_EQ(first_difference(out, expected), -1) << zinc::name_of(kDTypeOf<T>) << " n " << n;
    }
  });
}

// All ranks exchange blocks of count_of(from, to) elements.
template <class T>
void check_uneven_blocks(const Rank& rank, const std::function<int64_t(int from, int to)>& count_of,
                         const std::string& what) {
  const auto begin_of = [&](int from, int to) {
    int64_t begin = 0;
    for (int r = 0; r < to; ++r) begin += count_of(from, r);
    return begin;
  };
  AllToAllCounts counts;
  std::vector<T> expected;
  for (int r = 0; r < rank.size(); ++r) {
    counts.sent.push_back(count_of(rank.rank(), r));
    counts.received.push_back(count_of(r, rank.rank()));
    for (int to = 0; to < rank.size(); ++to) {
      counts.largest = std::max(counts.largest, count_of(r, to));
    }
    const auto theirs = values_of<T>(r, begin_of(r, rank.size()), 10);
    const auto block = theirs.begin() + begin_of(r, rank.rank());
    expected.insert(expected.end(), block, block + counts.received.back());
  }
  auto in = values_of<T>(rank.rank(), begin_of(rank.rank(), rank.size()), 10);
  const auto in_before = in;
  std::vector<T> out(expected.size());
  const Work work = rank.group.all_to_all({view_of(in), view_of(out), &counts}, rank.gather());
  counts = {};  // queued work does not read the caller's counts
  work.wait();
  EXPECT_EQ(first_difference(out, expected), -1) << zinc::name_of(kDTypeOf<T>) << " " << what;
  EXPECT_EQ(first_difference(in, in_before), -1) << "the input was changed";
}

inline void AllToAll_UnevenCounts_BringsTheBlockOfEveryPair(const Rank& rank) {
  for_every_dtype([&]<class T>() {
    for (const int64_t n : kSizes) {
      const auto drawn = [n](int from, int to) {
        const uint64_t bits = draw(from, to, 11);
        return bits % 3 == 0 ? 0 : static_cast<int64_t>((bits >> 8) % static_cast<uint64_t>(n + 1));
      };
      check_uneven_blocks<T>(rank, drawn, str("drawn counts up to ", n));
    }
    constexpr int64_t kFew = 1001;
    const int last = rank.size() - 1;
    check_uneven_blocks<T>(
        rank, [last](int, int to) { return to == last ? kFew : 0; }, "all to the last rank");
    check_uneven_blocks<T>(
        rank, [last](int from, int) { return from == last ? kFew : 0; }, "all from the last rank");
    check_uneven_blocks<T>(
        rank, [](int from, int to) { return from == to ? kFew + from : 0; }, "own blocks only");
    check_uneven_blocks<T>(
        rank, [](int from, int to) { return from == to ? 0 : kFew; }, "no own blocks");
  });
}

inline void Shift_AnyDTypeAndSize_BringsThePreviousRanksBytes(const Rank& rank) {
  const int previous = (rank.rank() + rank.size() - 1) % rank.size();
  for_every_dtype([&]<class T>() {
    for (const int64_t n : kSizes) {
      auto in = values_of<T>(rank.rank(), n, 8);
      std::vector<T> out(in.size());
      rank.group.shift({view_of(in), view_of(out)}, rank.gather()).wait();
      EXPECT_EQ(first_difference(out, values_of<T>(previous, n, 8)), -1)
          << zinc::name_of(kDTypeOf<T>) << " n " << n;
    }
  });
}

// More than the buffers between processes hold, several times, and no multiple of them.
inline void Collectives_LargeArrays_AreRight(const Rank& rank) {
  constexpr int64_t kElements = 250'007;
  const auto size = static_cast<size_t>(rank.size());
  auto shard = values_of<float>(rank.rank(), kElements, 8);
  std::vector<float> whole(shard.size() * size);
  rank.group.all_gather({view_of(shard), view_of(whole)}, rank.gather()).wait();
  std::vector<float> out(whole.size());
  rank.group.all_to_all({view_of(whole), view_of(out)}, rank.gather()).wait();
  for (int r = 0; r < rank.size(); ++r) {
    const auto begin = static_cast<size_t>(r) * shard.size();
    const auto theirs = values_of<float>(r, kElements, 8);
    const std::span<const float> gathered(whole.data() + begin, shard.size());
    EXPECT_EQ(first_difference(gathered, std::span<const float>(theirs)), -1) << "all_gather " << r;
    // Every rank had the same array, and sent its block of this rank's number.
    const auto mine = values_of<float>(rank.rank(), kElements, 8);
    const std::span<const float> block(out.data() + begin, shard.size());
    EXPECT_EQ(first_difference(block, std::span<const float>(mine)), -1) << "all_to_all " << r;
  }
  const int ranks = rank.size();
  check_uneven_blocks<float>(
      rank,
      [ranks](int from, int to) {
        return to == (from + 1) % ranks ? kElements : int64_t{1000} * from * to;
      },
      "large blocks to the next rank, small ones to others");
  check_reduce_scatter<float, float>(rank, kElements, false);
  check_reduce_scatter<bf16, float>(rank, kElements, true);
  std::vector<float> shifted(shard.size());
  rank.group.shift({view_of(shard), view_of(shifted)}, rank.gather()).wait();
  const int previous = (rank.rank() + rank.size() - 1) % rank.size();
  EXPECT_EQ(first_difference(shifted, values_of<float>(previous, kElements, 8)), -1) << "shift";
  auto message = values_of<float>(rank.rank(), kElements, 9);
  rank.group.broadcast({view_of(message), rank.size() - 1}, rank.gather()).wait();
  EXPECT_EQ(first_difference(message, values_of<float>(rank.size() - 1, kElements, 9)), -1);
}

// Even ranks send first. The second tag is received before the first.
inline void Messages_SeveralTags_ArriveByTag(const Rank& rank) {
  if (rank.size() < 2) return;
  const int next = (rank.rank() + 1) % rank.size();
  const int previous = (rank.rank() + rank.size() - 1) % rank.size();
  for (const int64_t n : kSizes) {
    std::vector<std::vector<float>> sent;
    for (uint64_t m = 0; m < 3; ++m) sent.push_back(values_of<float>(rank.rank(), n, 20 + m));
    std::vector<std::vector<float>> got(3, std::vector<float>(static_cast<size_t>(n)));
    const auto send_all = [&](StreamRef stream) {
      for (size_t m = 0; m < 3; ++m) {
        rank.group.send(view_of(sent[m]), next, m == 1 ? kNumMessageTags - 1 : 0, stream).wait();
      }
    };
    const auto receive_all = [&](StreamRef stream) {
      rank.group.receive(view_of(got[0]), previous, 0, stream).wait();
      rank.group.receive(view_of(got[1]), previous, kNumMessageTags - 1, stream).wait();
      rank.group.receive(view_of(got[2]), previous, 0, stream).wait();
    };
    // In a ring of an odd number of ranks two neighbours would send first: rank 0 receives last.
    if (rank.rank() % 2 == 0) {
      send_all(rank.gather());
      receive_all(rank.gather());
    } else {
      receive_all(rank.gather());
      send_all(rank.gather());
    }
    for (uint64_t m = 0; m < 3; ++m) {
      EXPECT_EQ(first_difference(got[m], values_of<float>(previous, n, 20 + m)), -1)
          << "message " << m << " n " << n;
    }
  }
}

}  // namespace zinc::comm::testing
