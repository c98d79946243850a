// The full product of issue and design: one hash of losses, weights and moments per model, world,
// accumulation, dtype and reduction schedule over stages, buckets, prefetch depths and
// recomputation; and one per model and dtype over worlds where determinism is "world". Twenty
// steps each. Every run has another execution: concurrent, with lagging ranks, or shuffled. Order
// shows in f32; the 16-bit dtypes beside it have the ends of each range.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/equivalence/training_run.h"

namespace zinc::zero {
namespace product_slow_test {

using training::Case;
using training::config_of;
using training::describe;
using training::Outcome;
using training::run;
using training::RunOptions;

constexpr int kSteps = 20;

// The execution, by the number of the run.
RunOptions execution_of(uint64_t number) {
  using Execution = ContextOptions::Execution;
  switch (number % 3) {
    case 0:
      return {.delays = true};
    case 1:
      return {.execution = Execution::shuffled, .shuffle_seed = number};
    default:
      return {};
  }
}

struct Variant {
  std::string words;
  EngineConfig config;
};

std::vector<Variant> variants_of(const Case& c) {
  const bool all = c.dtype == DType::f32;
  std::vector<Variant> variants;
  for (const int stage : {0, 1, 2, 3}) {
    if (stage >= 2 && c.accumulation > 1 && c.schedule == ReduceSchedule::boundary) continue;
    for (const int64_t bucket : {int64_t{1}, int64_t{9000}, int64_t{500'000'000}}) {
      for (const int64_t prefetch : {int64_t{0}, int64_t{8000}, int64_t{50'000'000}}) {
        if (stage < 3 && prefetch != 0) continue;
        if (!all && (bucket == 9000 || prefetch == 8000)) continue;
        for (const int64_t recompute : {0, 1, 2}) {
          if (!all && recompute == 2) continue;
          EngineConfig config = config_of(c);
          config.zero.stage = stage;
          if (stage >= 2) config.gradient.reduce_schedule.reset();
          config.zero.reduce_bucket_size = bucket;
          config.zero.allgather_bucket_size = bucket;
          config.zero.prefetch_bucket_size = prefetch;
          config.zero.overlap_comm = bucket != 9000;
          config.recompute.every_blocks = recompute;
          variants.push_back({str("stage ", stage, " buckets ", bucket, " prefetch ", prefetch,
                                  " recompute ", recompute),
                              config});
        }
      }
    }
  }
  return variants;
}

class ProductSlow : public testing::TestWithParam<Case> {};

TEST_P(ProductSlow, RunHasOneHash) {
  const Case c = GetParam();
  const std::vector<Variant> variants = variants_of(c);
  const Outcome reference = run(c, variants.front().config, kSteps);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < variants.size(); ++i) {
    EXPECT_TRUE(run(c, variants[i].config, kSteps, execution_of(i)) == reference)
        << describe(c) << ": " << variants[i].words << ", run " << i;
  }
  RecordProperty("runs", static_cast<int>(variants.size()));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto family : test::kFamilies) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int world : {1, 2, 3, 4}) {
        cases.push_back({world, 1, dtype, ReduceSchedule::boundary, family});
        cases.push_back({world, 4, dtype, ReduceSchedule::boundary, family});
        cases.push_back({world, 4, dtype, ReduceSchedule::micro_step, family});
      }
    }
  }
  return cases;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return str(test::name_of(c.family), "World", c.world, "Accumulation", c.accumulation,
             name_of(c.dtype), c.schedule == ReduceSchedule::boundary ? "Boundary" : "MicroStep");
}

INSTANTIATE_TEST_SUITE_P(All, ProductSlow, testing::ValuesIn(all_cases()), name_of_case);

class WorldProductSlow : public testing::TestWithParam<Case> {};

TEST_P(WorldProductSlow, WorldHasOneHash) {
  Outcome reference;
  uint64_t number = 0;
  for (const auto& [world, accumulation] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1}}) {
    Case c = GetParam();
    c.world = world;
    c.accumulation = accumulation;
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t recompute : {0, 1}) {
        EngineConfig config = config_of(c);
        config.determinism = Determinism::world;
        config.zero.stage = stage;
        config.recompute.every_blocks = recompute;
        const Outcome outcome = run(c, config, kSteps, execution_of(++number));
        if (reference.losses.empty()) reference = outcome;
        EXPECT_TRUE(outcome == reference)
            << describe(c) << ": stage " << stage << " recompute " << recompute;
      }
    }
  }
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
}

std::vector<Case> models_and_dtypes() {
  std::vector<Case> cases;
  for (const auto family : test::kFamilies) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      cases.push_back({1, 4, dtype, ReduceSchedule::micro_step, family});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, WorldProductSlow, testing::ValuesIn(models_and_dtypes()),
                         [](const auto& info) {
                           return str(test::name_of(info.param.family), name_of(info.param.dtype));
                         });

}  // namespace product_slow_test
}  // namespace zinc::zero
