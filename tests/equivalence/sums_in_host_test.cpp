// The same bits wherever the sums of gradients of states off the device are made.
#include <gtest/gtest.h>

#include "tests/equivalence/placement_run.h"

namespace zinc::zero {
namespace sums_in_host_test {

using namespace test;

class SumsInHost : public testing::TestWithParam<Case> {};

TEST_P(SumsInHost, ChangeNoBit) {
  const Case c = GetParam();
  const offload::SwapFolder folder;
  // With clipping the update ends beside the next forward pass or in the step; without it the
  // update begins in backward.
  for (const double clipping : {0.5, 0.0}) {
    EngineConfig config = config_of(c);
    config.gradient.clipping = clipping;
    config.zero.stage = 0;
    const Outcome reference = run(c, config, 2);
    struct Way {
      int stage;
      OffloadDevice states;
      double ratio;
      GradientOffload sums;
      uint64_t seed;  // 0: as fast as can be
    };
    using enum GradientOffload;
    for (const Way& way :
         {Way{1, OffloadDevice::cpu, 1.0, host, 0}, Way{2, OffloadDevice::cpu, 1.0, host, 1},
          Way{3, OffloadDevice::cpu, 0.4, host, 2}, Way{2, OffloadDevice::cpu, 1.0, device, 3},
          Way{3, OffloadDevice::nvme, 1.0, host, 0}, Way{2, OffloadDevice::nvme, 1.0, host, 4}}) {
      EngineConfig moved = placed(config, way.states, OffloadDevice::none, folder);
      moved.zero.stage = way.stage;
      moved.zero.offload_optimizer.ratio = way.ratio;
      moved.gradient.reduce_schedule = ReduceSchedule::micro_step;
      moved.gradient_offload = way.sums;
      moved.zero.overlap_comm = way.seed > 0;
      moved.overlap_update = way.seed % 2 == 0;
      const auto execution = way.seed > 0 ? ContextOptions::Execution::shuffled
                                          : ContextOptions::Execution::concurrent;
      EXPECT_TRUE(run(c, moved, 2, {.execution = execution, .shuffle_seed = way.seed}) == reference)
          << "stage " << way.stage << ", states on " << name_of(way.states) << ", ratio "
          << way.ratio << ", sums on " << name_of(way.sums) << ", clipping " << clipping;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, SumsInHost,
    testing::Values(Case{1, 3, DType::bf16, ReduceSchedule::micro_step},
                    Case{3, 3, DType::f32, ReduceSchedule::micro_step},
                    Case{2, 2, DType::bf16, ReduceSchedule::micro_step},
                    Case{1, 7, DType::f32, ReduceSchedule::micro_step, Determinism::world},
                    Case{2, 5, DType::bf16, ReduceSchedule::micro_step, Determinism::world}),
    [](const auto& info) {
      const Case& c = info.param;
      return str("World", c.world, "Accumulation", c.accumulation, name_of(c.dtype),
                 c.determinism == Determinism::world ? "World" : "");
    });

// Sums that are kept in 16 bits are rounded after every micro-batch, sums of ranks before that
// never: 16-bit wires and f32 ones.
TEST(SumsInHost, KeptIn16Bits_ChangeNoBit) {
  const offload::SwapFolder folder;
  for (const int world : {1, 3}) {
    for (const DType wire : {DType::bf16, DType::f32, DType::f16}) {
      const Case c{world, 3, DType::bf16, ReduceSchedule::micro_step};
      EngineConfig config = config_of(c);
      config.gradient.accumulation_dtype = DType::bf16;
      config.gradient.communication_dtype = wire;
      config.zero.stage = 2;
      const Outcome reference = run(c, config, 3);
      config = placed(config, OffloadDevice::cpu, OffloadDevice::none, folder);
      EXPECT_TRUE(run(c, config, 3) == reference) << name_of(wire) << " between " << world;
    }
  }
}

// Between micro-batches the device has none of them.
TEST(SumsInHost, LeaveTheDeviceAfterEveryMicroBatch) {
  const offload::SwapFolder folder;
  const auto between = [&](GradientOffload sums, DType dtype, int world) {
    int64_t live = 0;
    comm::run_local_ranks(world, {.seed = 5, .num_threads = 1}, [&](comm::World& ranks) {
      EngineConfig config = placed(training_config(3, dtype, ReduceSchedule::micro_step),
                                   OffloadDevice::cpu, OffloadDevice::none, folder);
      config.gradient_offload = sums;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, ranks);
      engine.run_passes(std::vector{make_batch(ranks.rank())});
      engine.step();
      engine.run_passes(std::vector{make_batch(2 + ranks.rank())});
      if (ranks.rank() == 0) {
        live = ranks.context().allocator().report().at(Tier::device, Label::gradients).live;
      }
      engine.step();
      engine.run_passes(std::vector{make_batch(4 + ranks.rank())});
      engine.step();
    });
    return live;
  };
  for (const int world : {1, 2}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const int64_t kept = between(GradientOffload::device, dtype, world);
      // The shard of the group that was reduced last is on its way.
      EXPECT_LT(between(GradientOffload::host, dtype, world), kept / 2) << name_of(dtype);
    }
  }
}

}  // namespace sums_in_host_test
}  // namespace zinc::zero
