#include "zero/update/gradient_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/local/local.h"
#include "comm/single/single.h"
#include "core/work_log.h"
#include "nn/module.h"

namespace zinc::zero {
namespace gradient_norm_test {

struct Model : nn::Module {
  nn::Parameter a{*this, "a", {137, 61}, autograd::Initializer::normal(1.0)};
  nn::Parameter b{*this, "b", {7}, autograd::Initializer::normal(1.0)};
  nn::Parameter c{*this, "c", {5000}, autograd::Initializer::normal(1.0)};
  nn::Parameter d{*this, "d", {70, 70}, autograd::Initializer::normal(1.0)};
};

// A gradient arena: element i of a parameter depends on its name and i alone; padding is zero.
Tensor arena_of(const ShardGroup& group) {
  std::vector<float> values(static_cast<size_t>(group.trained_numel()), 0.0f);
  for (const Placement& placement : group.placements()) {
    const RandomKey key =
        make_random_key(1, Purpose::test, 0, 0, hash_text(placement.parameter->name()));
    for (int64_t i = 0; i < placement.parameter->numel(); ++i) {
      values[static_cast<size_t>(placement.offset + i)] =
          std::exp(8.0f * key.uniform(static_cast<uint64_t>(i)) - 4.0f);
    }
  }
  return Tensor::from<float>(std::span<const float>(values), {group.trained_numel()});
}

double norm_in(int world_size, int64_t threshold, bool whole) {
  double sum = 0.0;
  comm::run_local_ranks(world_size, {.num_threads = 1}, [&](comm::World& world) {
    Model model;
    const auto groups = make_shard_groups(model, world.size(), threshold);
    const Tensor arena = arena_of(groups[0]);
    std::vector<std::vector<OwnedRange>> owned;
    for (int rank = 0; rank < (whole ? 1 : world.size()); ++rank) {
      owned.emplace_back();
      for (const Segment& segment : groups[0].segments()) {
        owned.back().push_back(
            {.segment = segment.kind,
             .range = whole ? segment.range() : segment.shard(rank, world.size())});
      }
    }
    std::vector<ConstView> mine;
    for (const OwnedRange& piece : owned[whole ? 0 : static_cast<size_t>(world.rank())]) {
      mine.push_back(arena.view().narrow(0, piece.range.begin, piece.range.size()));
    }
    GradientNorm norm(groups, owned, world.communicator(), world.context());
    const NormResult result = norm.measure(mine);
    EXPECT_EQ(result.nonfinite, nullptr);
    if (world.rank() == 0) sum = result.sum_of_squares;
  });
  return sum;
}

TEST(GradientNorm, MatchesALongDoubleSum) {
  Model model;
  Context context;
  const ContextScope scope(context);
  const auto groups = make_shard_groups(model, 1, 0);
  long double expected = 0.0L;
  for (const float value : arena_of(groups[0]).to_vector<float>()) {
    expected += static_cast<long double>(value) * value;
  }
  // 18 thousand positive f64 terms in trees of at most 2^14 leaves: far below 1e-14.
  EXPECT_NEAR(norm_in(1, 0, true) / static_cast<double>(expected), 1.0, 1e-14);
}

TEST(GradientNorm, SameBitsForEveryPartitionAndLayout) {
  const double reference = norm_in(1, 0, true);
  for (const int world : {1, 2, 3, 4, 5}) {
    for (const int64_t threshold : {0, 100, 6000}) {
      EXPECT_EQ(norm_in(world, threshold, false), reference) << world << " " << threshold;
      EXPECT_EQ(norm_in(world, threshold, true), reference) << world << " " << threshold;
    }
  }
}

TEST(GradientNorm, NamesTheFirstNonFiniteParameterAndItsRank) {
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& world) {
    Model model;
    const auto groups = make_shard_groups(model, 2, 0);
    const Segment& segment = groups[0].segment(SegmentKind::trained);
    Tensor arena = arena_of(groups[0]);
    const Placement& d = groups[0].placements()[3];
    // The last element of d lies in the second shard.
    ASSERT_GE(d.range().end - 1, segment.shard(1, 2).begin);
    arena.view().data_as<float>()[d.range().end - 1] = std::numeric_limits<float>::infinity();
    std::vector<std::vector<OwnedRange>> owned(2);
    for (int rank = 0; rank < 2; ++rank) {
      for (const Segment& each : groups[0].segments()) {
        owned[static_cast<size_t>(rank)].push_back(
            {.segment = each.kind, .range = each.shard(rank, 2)});
      }
    }
    std::vector<ConstView> mine;
    for (const OwnedRange& piece : owned[static_cast<size_t>(world.rank())]) {
      mine.push_back(arena.view().narrow(0, piece.range.begin, piece.range.size()));
    }
    GradientNorm norm(groups, owned, world.communicator(), world.context());
    const NormResult result = norm.measure(mine);
    EXPECT_EQ(result.nonfinite, d.parameter);
    EXPECT_EQ(result.nonfinite_rank, 1);
  });
}

TEST(GradientNorm, OfTwoTiers_IsThatOfOne) {
  Context context{ContextOptions{}};
  const ContextScope scope(context);
  Model model;
  const auto groups = make_shard_groups(model, 1, 0);
  const Tensor arena = arena_of(groups[0]);
  const int64_t whole = groups[0].trained_numel();
  const int64_t half = whole / 2 / kNormChunk * kNormChunk;
  const std::vector<Range> parts{{0, half}, {half, whole}};
  const auto communicator = comm::make_single();
  const auto measured = [&](const std::vector<Tier>& tiers, const Tensor& values) {
    std::vector<OwnedRange> owned;
    std::vector<ConstView> gradients;
    for (size_t i = 0; i < parts.size(); ++i) {
      owned.push_back({.range = parts[i], .tier = tiers[i]});
      gradients.emplace_back(values.view().data_as<float>() + parts[i].begin, DType::f32,
                             Shape{parts[i].size()}, context.device(), tiers[i]);
    }
    return GradientNorm(groups, {owned}, *communicator, context).measure(gradients).sum_of_squares;
  };
  const double expected = measured({Tier::device, Tier::device}, arena);
  Tensor other = arena.clone();
  other.fill(3.0);
  for (const auto& tiers : {std::vector{Tier::device, Tier::pinned_host},
                            std::vector{Tier::pinned_host, Tier::device}}) {
    EXPECT_NE(measured(tiers, other), expected);  // leaves its sums in memory that is used again
    EXPECT_EQ(measured(tiers, arena), expected);
  }
}

// Two halves of a gradient, in host memory and on a GPU: the host waits for neither before both are
// queued, and neither stream for the other.
TEST(GradientNorm, OfTwoTiers_IsMeasuredSideBySide) {
  WorkLog log;
  Context context({.device = {.kind = DeviceKind::cuda, .index = 0, .meta = true},
                   .num_threads = 1,
                   .execution = ContextOptions::Execution::inline_all,
                   .work_log = &log});
  const ContextScope scope(context);
  Model model;
  const auto groups = make_shard_groups(model, 1, 0);
  const int64_t half = groups[0].segments()[0].size / 2 / kNormChunk * kNormChunk;
  const Block device = context.allocate(half * 4, Label::gradients);
  const Block host = context.allocate(half * 4, Label::gradients, Tier::pinned_host);
  const auto communicator = comm::make_single();
  const std::vector<OwnedRange> owned{
      {.range = {0, half}},
      {.range = {half, 2 * half}, .tier = Tier::pinned_host},
  };
  GradientNorm norm(groups, {owned}, *communicator, context);
  norm.measure({View(device.data(), DType::f32, Shape{half}, context.device()),
                View(host.data(), DType::f32, Shape{half}, context.device(), Tier::pinned_host)});
  const auto is_norm = [](const WorkLog::Entry& entry) { return entry.label == "finite_norm"; };
  const auto& entries = log.entries();
  const auto first = std::find_if(entries.begin(), entries.end(), is_norm);
  const auto last = std::find_if(entries.rbegin(), entries.rend(), is_norm).base();
  ASSERT_EQ(std::count_if(first, last, is_norm), 2);
  EXPECT_NE(first->stream, (last - 1)->stream);
  EXPECT_TRUE(std::all_of(first, last, [](const WorkLog::Entry& entry) {
    return entry.action == WorkLog::Action::work;
  }));
  // After the work it waits for both.
  EXPECT_EQ(std::count_if(last, entries.end(),
                          [](const WorkLog::Entry& entry) {
                            return entry.action == WorkLog::Action::host_wait;
                          }),
            2);
}

}  // namespace gradient_norm_test
}  // namespace zinc::zero
