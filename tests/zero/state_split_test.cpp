#include "zero/layout/state_split.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "tests/zero/tiny_model.h"

namespace zinc::zero {
namespace state_split_test {

int64_t owned(const ShardGroups& groups, int world) {
  int64_t numel = 0;
  for (const ShardGroup& group : groups) numel += group.trained_numel() / world;
  return numel;
}

int64_t in_tier(const StateSplit& split, const ShardGroups& groups, Tier tier) {
  int64_t numel = 0;
  for (const ShardGroup& group : groups) numel += split.numel(group, tier);
  return numel;
}

TEST(StateSplit, LeavesTheShareToTheChunk_FirstOnTheDeviceThenElsewhere) {
  nn::Gpt2 model(test::tiny_config());
  constexpr int kWorld = 3;
  const auto groups = make_shard_groups(model, kWorld, 100);
  const int64_t all = owned(groups, kWorld);
  for (const double share : {0.0, 1e-9, 0.25, 0.3, 0.5, 0.9, 1.0}) {
    const StateSplit split(groups, kWorld, Tier::pinned_host, share);
    const int64_t away = in_tier(split, groups, Tier::pinned_host);
    EXPECT_EQ(away + in_tier(split, groups, Tier::device), all);
    EXPECT_EQ(away % kNormChunk, 0);
    EXPECT_GE(static_cast<double>(away), share * static_cast<double>(all));
    EXPECT_LT(static_cast<double>(away - kNormChunk), share * static_cast<double>(all));
    EXPECT_EQ(split.leaves_device(), share > 0.0);

    bool is_away = false;
    for (const ShardGroup& group : groups) {
      int64_t place = 0;  // of the next piece in its tier
      for (const Segment& segment : group.segments()) {
        if (!is_trained(segment.kind)) continue;
        for (int rank = 0; rank < kWorld; ++rank) {
          const Range shard = segment.shard(rank, kWorld);
          int64_t next = shard.begin;
          for (const OwnedRange& piece : split.cut(group, segment, shard)) {
            EXPECT_EQ(piece.range.begin, next);
            next = piece.range.end;
            if (rank > 0) continue;
            if (piece.tier == Tier::pinned_host && !is_away) place = 0;
            EXPECT_EQ(piece.place, place) << group.name();
            place += piece.range.size();
            EXPECT_FALSE(is_away && piece.tier == Tier::device) << group.name();
            is_away = piece.tier == Tier::pinned_host;
          }
          EXPECT_EQ(next, shard.end);
        }
      }
    }
  }
}

TEST(StateSplit, EveryRankCutsAtTheSamePlaceOfItsShard) {
  nn::Gpt2 model(test::tiny_config());
  const auto groups = make_shard_groups(model, 2, 100);
  const StateSplit split(groups, 2, Tier::pinned_host, 0.4);
  int cuts = 0;
  for (const ShardGroup& group : groups) {
    for (const Segment& segment : group.segments()) {
      const Range first = segment.shard(0, 2);
      const auto mine = split.cut(group, segment, first);
      const auto other = split.cut(group, segment, segment.shard(1, 2));
      ASSERT_EQ(mine.size(), other.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i].place, other[i].place);
        EXPECT_EQ(mine[i].range.end + first.size(), other[i].range.end);
      }
      if (mine.size() == 1) continue;
      ++cuts;
      EXPECT_THROW(split.cut(group, segment, segment.range()), InternalError);
    }
  }
  EXPECT_EQ(cuts, 1);
}

TEST(StateSplit, OnOneTierCutsNothing) {
  nn::Gpt2 model(test::tiny_config());
  const auto groups = make_shard_groups(model, 1, 100);
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    const StateSplit split(groups, 1, tier, 1.0);
    EXPECT_EQ(split.leaves_device(), tier != Tier::device);
    for (const ShardGroup& group : groups) {
      EXPECT_EQ(split.numel(group, tier), group.trained_numel());
      EXPECT_EQ(split.numel(group, Tier::pinned_host), 0);
    }
  }
}

}  // namespace state_split_test
}  // namespace zinc::zero
