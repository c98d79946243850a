// The same bits where results of norms and activations are made again in backward.
#include <gtest/gtest.h>

#include <vector>

#include "offload/swap_space.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace selective_test {

using namespace test;

class Selective : public testing::TestWithParam<Case> {};

TEST_P(Selective, ChangesNoBitOnAnyStage) {
  const Case c = GetParam();
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  config.recompute.selective = true;
  for (const int stage : {0, 2, 3}) {
    config.zero.stage = stage;
    if (stage >= 2) config.gradient.reduce_schedule.reset();
    EXPECT_TRUE(run(c, config, 2) == reference) << "stage " << stage;
  }
  EngineConfig all = placed(config, OffloadDevice::nvme, OffloadDevice::nvme, folder);
  all.recompute.every_blocks = 1;
  all.recompute.most_blocks = 1;  // the other blocks are not recomputed
  for (const PassOrder order : {PassOrder::horizontal, PassOrder::vertical}) {
    all.pass_order = order;
    EXPECT_TRUE(
        run(c, all, 2, {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = 3}) ==
        reference)
        << "on NVMe, " << name_of(order);
  }
  EXPECT_TRUE(folder.is_empty());
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, Selective,
    testing::Values(
        Case{2, 3, DType::f32, ReduceSchedule::micro_step},
        Case{2, 2, DType::bf16, ReduceSchedule::micro_step, Determinism::run, Family::llama},
        Case{2, 2, DType::f32, ReduceSchedule::micro_step, Determinism::run, Family::t5},
        Case{2, 2, DType::bf16, ReduceSchedule::micro_step, Determinism::run, Family::roberta},
        Case{.world = 2,
             .accumulation = 2,
             .dtype = DType::bf16,
             .schedule = ReduceSchedule::micro_step,
             .family = Family::llama,
             .fp8 = true}),
    [](const auto& info) {
      const Case& c = info.param;
      return str(name_of(c.family), "World", c.world, name_of(c.dtype), c.fp8 ? "Fp8" : "");
    });

class SelectiveInputs : public testing::TestWithParam<Case> {};

// Results of norms and activations that are inputs of recomputed blocks are kept where the
// configuration says, and no pass leaves its record.
TEST_P(SelectiveInputs, ChangeNoBitWhereverTheyWait) {
  const Case c = GetParam();
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  config.recompute.selective = true;
  const OffloadConfig nvme{.device = OffloadDevice::nvme, .nvme_path = folder.path()};
  const RecomputeConfig places[] = {
      {},
      {.cpu_checkpointing = true},
      {.contiguous_memory_optimization = true},
      {.cpu_checkpointing = true, .contiguous_memory_optimization = true},
      {.offload = nvme}};
  for (const RecomputeConfig& place : places) {
    for (const int64_t every : {1, 2}) {
      for (const PassOrder order : {PassOrder::horizontal, PassOrder::vertical}) {
        EngineConfig changed = config;
        changed.recompute = place;
        changed.recompute.selective = true;
        changed.recompute.every_blocks = every;
        changed.pass_order = order;
        changed.zero.stage = every == 1 ? 3 : 1;
        EXPECT_TRUE(run(c, changed, 2) == reference)
            << "every " << every << ", host " << place.cpu_checkpointing << ", side by side "
            << place.contiguous_memory_optimization << ", " << name_of(place.offload.device) << ", "
            << name_of(order);
      }
    }
  }
  EXPECT_TRUE(folder.is_empty());
}

INSTANTIATE_TEST_SUITE_P(Families, SelectiveInputs,
                         testing::Values(Case{1, 2, DType::f32, ReduceSchedule::micro_step,
                                              Determinism::run, Family::roberta},
                                         Case{1, 2, DType::bf16, ReduceSchedule::micro_step,
                                              Determinism::run, Family::bloom},
                                         Case{.accumulation = 2,
                                              .schedule = ReduceSchedule::micro_step,
                                              .family = Family::t5,
                                              .dropout = 0.0},
                                         Case{1, 2, DType::f32, ReduceSchedule::micro_step,
                                              Determinism::run, Family::t5}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str(name_of(c.family), c.dropout > 0.0 ? "" : "WithoutDropout");
                         });

}  // namespace selective_test
}  // namespace zinc::zero
