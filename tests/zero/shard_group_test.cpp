#include "zero/layout/shard_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace zinc::zero {
namespace shard_group_test {

// Two blocks between an embedding and a norm, with parameters of awkward sizes.
struct Block : nn::Module {
  Block(nn::Module& parent, std::string name) : Module(parent, std::move(name)) {
    mark_shard_unit();
  }
  nn::Parameter weight{*this, "weight", {33, 65}, autograd::Initializer::normal(1.0)};
  nn::Parameter bias{*this, "bias", {65}, autograd::Initializer::zeros()};
  nn::Parameter empty{*this, "empty", {0, 3}, autograd::Initializer::zeros()};
};

struct Model : nn::Module {
  nn::Parameter wte{*this, "wte", {100, 30}, autograd::Initializer::normal(1.0)};
  nn::Parameter wpe{*this, "wpe", {10, 30}, autograd::Initializer::normal(1.0)};
  nn::ModuleList<Block> h{*this, "h", 2};
  nn::Parameter gamma{*this, "gamma", {30}, autograd::Initializer::ones()};
};

int64_t count(const ShardGroups& groups, const Segment& segment, int group) {
  int64_t elements = 0;
  for (const Placement& placement : groups[group].placements()) {
    if (placement.segment == segment.kind) elements += placement.parameter->numel();
  }
  return elements;
}

TEST(ShardGroups, FollowBlocksAndTheRunsBetweenThem) {
  Model model;
  const auto groups = make_shard_groups(model, 2, 0);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].placements().size(), 2u);
  EXPECT_EQ(groups[1].name(), "h.0");
  EXPECT_EQ(groups[2].name(), "h.1");
  EXPECT_EQ(groups[3].placements().size(), 1u);
  EXPECT_EQ(groups[3].placements()[0].parameter, &model.gamma);
}

TEST(ShardGroups, EveryParameterStartsAtAChunkAndNoneOverlap) {
  Model model;
  for (const int world : {1, 2, 3, 5, 8}) {
    for (const ShardGroup& group : make_shard_groups(model, world, 100)) {
      std::vector<Range> taken;
      for (const Placement& placement : group.placements()) {
        EXPECT_EQ(placement.offset % kNormChunk, 0);
        EXPECT_LE(placement.range().end, group.numel());
        if (!placement.range().empty()) taken.push_back(placement.range());
      }
      std::sort(taken.begin(), taken.end(),
                [](const Range& a, const Range& b) { return a.begin < b.begin; });
      for (size_t i = 1; i < taken.size(); ++i) EXPECT_LE(taken[i - 1].end, taken[i].begin);
    }
  }
}

TEST(ShardGroups, ShardsTileEverySegmentOnUnitBoundaries) {
  Model model;
  for (const int world : {1, 2, 3, 7}) {
    const auto groups = make_shard_groups(model, world, 100);
    for (const ShardGroup& group : groups) {
      int64_t position = 0;
      for (const Segment& segment : group.segments()) {
        EXPECT_EQ(segment.offset, position);
        EXPECT_GE(segment.size, count(groups, segment, group.index()));
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(segment.shard(rank, world).begin, position);
          EXPECT_EQ(segment.shard(rank, world).size() % kShardUnit, 0);
          position = segment.shard(rank, world).end;
        }
        EXPECT_EQ(segment.range().end, position);
      }
      EXPECT_EQ(position, group.numel());
    }
  }
}

TEST(ShardGroups, SegmentsFollowSizeAndFreezing) {
  Model model;
  model.freeze("wpe");
  const auto groups = make_shard_groups(model, 1, 100);
  const auto kind = [&](size_t group, size_t position) {
    return groups[group].placements()[position].segment;
  };
  EXPECT_EQ(kind(0, 0), SegmentKind::trained);     // wte: 3000 elements
  EXPECT_EQ(kind(0, 1), SegmentKind::frozen);      // wpe
  EXPECT_EQ(kind(1, 0), SegmentKind::trained);     // weight: 2145
  EXPECT_EQ(kind(1, 1), SegmentKind::persistent);  // bias: 65
  EXPECT_EQ(kind(1, 2), SegmentKind::persistent);  // empty: 0
  EXPECT_EQ(groups[0].num_trained_parameters(), 1);
  EXPECT_EQ(groups[0].trained_numel(), 4096);
  EXPECT_EQ(groups[0].numel(), 6144);
}

// One chunk of small parameters a block: a segment of their own on two ranks would be half padding,
// on a thousand nothing else. A group of small parameters alone keeps them on every rank.
TEST(ShardGroups, SmallParametersOfLargeWorlds_LieWithTheLargeOnes) {
  Model model;
  for (const int world : {1, 2, 1024}) {
    const auto groups = make_shard_groups(model, world, 100);
    const bool apart = world == 1;
    ASSERT_EQ(groups[1].segments().size(), apart ? 2u : 1u) << world;
    EXPECT_EQ(groups[1].placements()[1].segment,
              apart ? SegmentKind::persistent : SegmentKind::trained);
    EXPECT_EQ(groups[1].numel(), apart ? 4096 + 2048 : std::max(4096, world * 2048));
    EXPECT_EQ(groups[3].placements()[0].segment, SegmentKind::persistent);  // gamma
  }
}

TEST(ShardGroups, GapsAndParametersFillTheTrainedRange) {
  Model model;
  for (const ShardGroup& group : make_shard_groups(model, 3, 100)) {
    int64_t covered = 0;
    for (const Range& gap : group.trained_gaps()) {
      covered += gap.size();
      for (const Placement& placement : group.placements()) {
        EXPECT_TRUE(intersect(gap, placement.range()).empty());
      }
    }
    for (const Placement& placement : group.placements()) {
      if (is_trained(placement.segment)) covered += placement.range().size();
    }
    EXPECT_EQ(covered, group.trained_numel());
  }
}

TEST(ShardGroups, MixedDtypesInOneGroupAreRefused) {
  Model model;
  model.h[0].bias.set_dtype(DType::bf16);
  try {
    make_shard_groups(model, 1, 0);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "shard group 'h.0': all parameters must be of one dtype: h.0.weight is f32, "
                 "h.0.bias is bf16");
  }
}

}  // namespace shard_group_test
}  // namespace zinc::zero
