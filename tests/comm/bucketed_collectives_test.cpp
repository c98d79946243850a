// Collectives in buckets: what they give does not depend on the bucket.
#include "comm/bucketed_collectives.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/local/local.h"
#include "core/context.h"
#include "core/float16.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {
namespace bucketed_collectives_test {

constexpr int64_t kShard = 5000;  // elements: not a multiple of the unit of pieces

// Small whole numbers: all sums below are exact in f32 and bf16.
int whole_number(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 9) - 4; }
int sum_of(int world, int64_t i) {
  int sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += whole_number(rank, i);
  return sum;
}

template <class T>
std::vector<T> whole_numbers(int rank, int64_t numel) {
  std::vector<T> values;
  for (int64_t i = 0; i < numel; ++i)
    values.emplace_back(static_cast<float>(whole_number(rank, i)));
  return values;
}
class Buckets : public ::testing::TestWithParam<int64_t> {
 protected:
  // Runs body(collectives, world) on three ranks.
  template <class Body>
  void on_ranks(WireOptions options, const Body& body) {
    options.bucket_numel = GetParam();
    run_local_ranks(3, {.num_threads = 1}, [&](World& world) {
      BucketedCollectives collectives(world.communicator(), world.context(), options);
      body(collectives, world);
      world.context().synchronize();
      EXPECT_EQ(world.context().allocator().report().at(Tier::device).live, 0);
    });
  }
};

TEST_P(Buckets, ReduceScatter_SumsThisRanksShard) {
  for (const bool accumulate : {false, true}) {
    on_ranks({.dtype = DType::bf16}, [&](BucketedCollectives& collectives, World& world) {
      std::vector<bf16> segment = whole_numbers<bf16>(world.rank(), 3 * kShard);
      std::vector<float> shard(kShard, 100.0f);
      const StreamRef stream = world.context().stream(StreamRole::reduce);
      collectives.reduce_scatter(view_of(segment), view_of(shard), accumulate, stream).wait();
      for (int64_t i = 0; i < kShard; ++i) {
        const int sum = sum_of(3, world.rank() * kShard + i) + (accumulate ? 100 : 0);
        ASSERT_EQ(shard[static_cast<size_t>(i)], static_cast<float>(sum)) << i;
      }
      EXPECT_EQ(static_cast<float>(segment[1]), static_cast<float>(whole_number(world.rank(), 1)));
    });
  }
}

TEST_P(Buckets, ReduceScatter_ToFewerBits_RoundsTheSum) {
  on_ranks({.dtype = DType::f32}, [&](BucketedCollectives& collectives, World& world) {
    std::vector<bf16> segment = whole_numbers<bf16>(world.rank(), 3 * kShard);
    std::vector<bf16> shard(kShard);
    const StreamRef stream = world.context().stream(StreamRole::reduce);
    collectives.reduce_scatter(view_of(segment), view_of(shard), false, stream).wait();
    for (int64_t i = 0; i < kShard; ++i) {
      ASSERT_EQ(static_cast<float>(shard[static_cast<size_t>(i)]),
                static_cast<float>(sum_of(3, world.rank() * kShard + i)))
          << i;
    }
  });
}

TEST_P(Buckets, AllGather_BringsTheShardsOfAllRanks) {
  on_ranks({}, [&](BucketedCollectives& collectives, World& world) {
    std::vector<float> segment(3 * kShard);
    std::vector<float> shard = whole_numbers<float>(world.rank(), kShard);
    const StreamRef stream = world.context().stream(StreamRole::gather);
    collectives.all_gather(view_of(shard), view_of(segment), stream).wait();
    for (int64_t i = 0; i < 3 * kShard; ++i) {
      ASSERT_EQ(segment[static_cast<size_t>(i)],
                static_cast<float>(whole_number(static_cast<int>(i / kShard), i % kShard)))
          << i;
    }
  });
}

TEST_P(Buckets, AllReduce_DividesOnTheWire) {
  on_ranks(
      {.dtype = DType::bf16, .divisor = 2.0}, [&](BucketedCollectives& collectives, World& world) {
        std::vector<float> values = whole_numbers<float>(world.rank(), 3 * kShard);
        const StreamRef stream = world.context().stream(StreamRole::reduce);
        collectives.all_reduce(view_of(values), stream).wait();
        for (int64_t i = 0; i < 3 * kShard; ++i) {
          ASSERT_EQ(values[static_cast<size_t>(i)], 0.5f * static_cast<float>(sum_of(3, i))) << i;
        }
      });
}

// 1.5 rounds to itself in bf16, the sum of 256 and 1.5 does not.
TEST_P(Buckets, AllReduce_HasTheBitsOfReduceScatter_WhateverTheWire) {
  for (const DType wire : {DType::f32, DType::bf16, DType::f16}) {
    for (const double divisor : {1.0, 3.0}) {
      on_ranks({.dtype = wire, .divisor = divisor}, [&](BucketedCollectives& collectives,
                                                        World& world) {
        const auto check = [&]<class T>(T) {
          std::vector<T> values;
          for (int64_t i = 0; i < 3 * kShard; ++i) {
            const int small = whole_number(world.rank(), i);
            values.emplace_back(world.rank() == 0 ? 256.0f : static_cast<float>(small) + 0.5f);
          }
          const std::vector<T> before = values;
          std::vector<T> shard(kShard);
          const StreamRef stream = world.context().stream(StreamRole::reduce);
          collectives.reduce_scatter(view_of(values), view_of(shard), false, stream).wait();
          ASSERT_EQ(std::memcmp(values.data(), before.data(), sizeof(T) * values.size()), 0);
          collectives.all_reduce(view_of(values), stream).wait();
          for (int64_t i = 0; i < kShard; ++i) {
            ASSERT_EQ(static_cast<float>(values[static_cast<size_t>(world.rank() * kShard + i)]),
                      static_cast<float>(shard[static_cast<size_t>(i)]))
                << name_of(wire) << ' ' << divisor << ' ' << i;
          }
        };
        check(float());
        check(bf16());
      });
    }
  }
}

// One element, two whole pieces of a shard, all at once.
INSTANTIATE_TEST_SUITE_P(Numel, Buckets, ::testing::Values(1, 3 * 2048, 1'000'000));

}  // namespace bucketed_collectives_test
}  // namespace zinc::comm::testing
