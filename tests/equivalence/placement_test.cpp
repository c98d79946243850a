// The same bits wherever optimizer states live: device and host memory, on stages 1 to 3, against
// stage 0 with everything on the device.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "offload/file.h"
#include "optim/factory.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace placement_test {

using namespace test;

class Placement : public testing::TestWithParam<Case> {};

TEST_P(Placement, OfTheOptimizerChangesNoBit) {
  const Case c = GetParam();
  constexpr int kSteps = 4;
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, kSteps);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  for (const int stage : {1, 2, 3}) {
    if (stage >= 2 && c.schedule == ReduceSchedule::boundary && c.accumulation > 1) continue;
    config.zero.stage = stage;
    if (stage >= 2) config.gradient.reduce_schedule.reset();
    for (const OffloadDevice device : {OffloadDevice::cpu, OffloadDevice::nvme}) {
      config.zero.offload_optimizer = {.device = device, .nvme_path = folder.path()};
      config.aio.block_size = 4096;
      // Tiles smaller than slices, and one for everything.
      for (const int64_t tile : {int64_t{2048}, int64_t{0}}) {
        config.zero.sub_group_size = tile;
        config.zero.offload_optimizer.pipeline_read = tile != 0 || stage == 3;
        config.zero.offload_optimizer.pipeline_write = tile != 0 || stage == 2;
        EXPECT_TRUE(run(c, config, kSteps) == reference)
            << "stage " << stage << " on " << name_of(device) << ", tiles of " << tile;
      }
      EXPECT_TRUE(folder.is_empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, Placement,
    testing::Values(Case{1}, Case{2}, Case{3, 2}, Case{1, 1, DType::bf16}, Case{2, 1, DType::f16},
                    Case{2, 2, DType::bf16, ReduceSchedule::micro_step},
                    Case{2, 3, DType::f32, ReduceSchedule::micro_step, Determinism::world},
                    Case{2, 1, DType::f32, ReduceSchedule::boundary, Determinism::run, Family::t5},
                    Case{1, 2, DType::bf16, ReduceSchedule::micro_step, Determinism::run,
                         Family::roberta},
                    Case{.world = 2, .dtype = DType::bf16, .moments = optim::Moments::bf16},
                    Case{.world = 2, .dtype = DType::bf16, .rule = optim::OptimizerKind::adam8bit},
                    Case{.world = 3, .dtype = DType::bf16, .rule = optim::OptimizerKind::lamb},
                    Case{.world = 3, .dtype = DType::f16, .rule = optim::OptimizerKind::adafactor},
                    Case{.world = 2, .dtype = DType::bf16, .narrow_weights = true},
                    Case{.world = 2, .accumulation = 2, .dtype = DType::bf16, .fp8 = true},
                    Case{.world = 2, .dtype = DType::bf16, .narrow_logits = true},
                    Case{.world = 3,
                         .accumulation = 2,
                         .dtype = DType::f16,
                         .schedule = ReduceSchedule::micro_step,
                         .rule = optim::OptimizerKind::muon}),
    [](const auto& info) {
      const Case& c = info.param;
      return str(name_of(c.family), "World", c.world, "Accumulation", c.accumulation,
                 name_of(c.dtype),
                 c.schedule == ReduceSchedule::boundary ? "Boundary" : "MicroStep",
                 c.determinism == Determinism::world ? "World" : "",
                 c.moments == optim::Moments::bf16 ? "NarrowMoments" : "",
                 c.rule == optim::OptimizerKind::adamw ? "" : name_of(c.rule), c.fp8 ? "Fp8" : "",
                 c.narrow_logits ? "NarrowLogits" : "", c.narrow_weights ? "NarrowWeights" : "");
    });

// The engine follows the configuration: losses differ, and are near.
void expect_other_losses(const Case& c, const Case& changed) {
  const Outcome before = run(c, config_of(c), 2), after = run(changed, config_of(changed), 2);
  EXPECT_NE(after.losses, before.losses);
  EXPECT_NEAR(after.losses.back(), before.losses.back(), 0x1p-4);
}

TEST(Placement, NarrowLogits_AreTheEngines) {
  expect_other_losses({.dtype = DType::bf16}, {.dtype = DType::bf16, .narrow_logits = true});
}

TEST(Placement, UpdateOfStatesThatTravelChangesNoBit) {
  const offload::SwapFolder folder;
  using optim::Moments;
  using optim::OptimizerKind;
  for (const auto& [dtype, moments, rule] :
       {std::tuple{DType::f32, Moments::f32, OptimizerKind::adamw},
        {DType::bf16, Moments::f32, OptimizerKind::adamw},
        {DType::f32, Moments::bf16, OptimizerKind::adamw},
        {DType::bf16, Moments::f32, OptimizerKind::adam8bit},
        {DType::bf16, Moments::bf16, OptimizerKind::lamb},
        {DType::f32, Moments::f32, OptimizerKind::adafactor}}) {
    const Case c{.world = 2,
                 .dtype = dtype,
                 .schedule = ReduceSchedule::micro_step,
                 .moments = moments,
                 .rule = rule};
    EngineConfig config = config_of(c);
    config.zero.stage = 0;
    const Outcome reference = run(c, config, 2);
    struct Way {
      int stage;
      OffloadDevice parameters;
      int64_t tile;
      ContextOptions::Execution execution;
    };
    constexpr auto kConcurrent = ContextOptions::Execution::concurrent;
    constexpr auto kShuffled = ContextOptions::Execution::shuffled;
    for (const Way& way :
         {Way{1, OffloadDevice::none, 0, kConcurrent}, Way{2, OffloadDevice::none, 2048, kShuffled},
          Way{3, OffloadDevice::cpu, 2048, kShuffled},
          Way{3, OffloadDevice::nvme, 2048, kConcurrent}}) {
      EngineConfig moved = placed(config, OffloadDevice::cpu, way.parameters, folder);
      moved.zero.stage = way.stage;
      moved.zero.sub_group_size = way.tile;
      moved.offload_step = OffloadStep::device;
      EXPECT_TRUE(run(c, moved, 2, {.execution = way.execution, .shuffle_seed = 1}) == reference)
          << "stage " << way.stage << ", parameters " << name_of(way.parameters) << ", "
          << name_of(dtype) << ", moments in " << name_of(moments) << ", " << name_of(rule);
    }
  }
}

// The model multiplies in 8 bits while the engine lives, and only if it is told so.
TEST(Placement, ProductsIn8Bits_AreTheEngines) {
  const Case c{.dtype = DType::bf16, .fp8 = true};
  expect_other_losses({.dtype = DType::bf16}, c);
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto model = make_tiny_model(c.family);
    const auto first_loss = [&](bool fp8) {
      EngineConfig config = config_of(c);
      config.fp8 = fp8;
      Engine engine(*model, config, world);
      const Loss loss = engine.forward(make_batch(c.family, 0));
      return loss.sum.item();
    };
    const double before = first_loss(false);
    EXPECT_NE(first_loss(true), before);
    EXPECT_EQ(first_loss(false), before);
  });
}

// Moments in bf16 are rounded by what an element is, not by where it lies; a block of 8-bit moments
// lies in one shard; sums of whole parameters have one tree.
TEST(Placement, OverMoreRanks_RoundsMomentsAlike) {
  const auto of = [](int world, int64_t accumulation, int stage, optim::Moments moments,
                     optim::OptimizerKind rule = optim::OptimizerKind::adamw,
                     bool narrow_weights = false) {
    const Case c{.world = world,
                 .accumulation = accumulation,
                 .dtype = DType::bf16,
                 .schedule = ReduceSchedule::micro_step,
                 .determinism = Determinism::world,
                 .moments = moments,
                 .rule = rule,
                 .narrow_weights = narrow_weights};
    EngineConfig config = config_of(c);
    config.zero.stage = stage;
    config.gradient.reduce_schedule.reset();
    return run(c, config, 3).norms;
  };
  const std::vector<double> alone = of(1, 4, 0, optim::Moments::bf16);
  EXPECT_EQ(of(2, 2, 1, optim::Moments::bf16), alone);
  EXPECT_EQ(of(4, 1, 3, optim::Moments::bf16), alone);
  const std::vector<double> wide = of(1, 4, 0, optim::Moments::f32);
  EXPECT_NE(wide, alone);
  constexpr auto kBlocks = optim::OptimizerKind::adam8bit;
  const std::vector<double> in_blocks = of(1, 4, 0, optim::Moments::f32, kBlocks);
  EXPECT_EQ(of(2, 2, 1, optim::Moments::f32, kBlocks), in_blocks);
  EXPECT_EQ(of(4, 1, 3, optim::Moments::f32, kBlocks), in_blocks);
  EXPECT_NE(wide, in_blocks);
  constexpr auto kAdamW = optim::OptimizerKind::adamw;
  const std::vector<double> narrow = of(1, 4, 0, optim::Moments::bf16, kAdamW, true);
  EXPECT_EQ(of(2, 2, 1, optim::Moments::bf16, kAdamW, true), narrow);
  EXPECT_EQ(of(4, 1, 3, optim::Moments::bf16, kAdamW, true), narrow);
  EXPECT_NE(narrow, alone);
  for (const auto rule : {optim::OptimizerKind::lamb, optim::OptimizerKind::adafactor}) {
    const std::vector<double> whole = of(1, 4, 0, optim::Moments::f32, rule);
    EXPECT_EQ(of(2, 2, 1, optim::Moments::f32, rule), whole) << name_of(rule);
    EXPECT_EQ(of(4, 1, 3, optim::Moments::f32, rule), whole) << name_of(rule);
  }
}

TEST(Placement, ShuffledExecutionChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t accumulation : {1, 2}) {
      const Case c{2, accumulation, dtype, ReduceSchedule::micro_step};
      EngineConfig config = config_of(c);
      config.zero.stage = 0;
      const Outcome reference = run(c, config, 3);
      const offload::SwapFolder folder;
      config.zero.sub_group_size = 4096;
      config.zero.overlap_comm = true;
      for (const int stage : {1, 2, 3}) {
        config.zero.stage = stage;
        config.zero.offload_optimizer = {
            .device = stage == 1 ? OffloadDevice::cpu : OffloadDevice::nvme,
            .nvme_path = folder.path(),
            .pipeline_read = stage == 3,
            .pipeline_write = accumulation == 1};
        for (const uint64_t seed : {1, 2}) {
          EXPECT_TRUE(run(c, config, 3,
                          {.execution = ContextOptions::Execution::shuffled,
                           .shuffle_seed = seed}) == reference)
              << "stage " << stage << " seed " << seed << " " << name_of(dtype);
        }
      }
    }
  }
}

// Equal bits mean little if nothing has moved: no byte of states is on the device, and gradients
// and weights cross in every step.
TEST(Placement, OnTheHost_NothingOfTheOptimizerIsOnTheDevice) {
  for (const int stage : {1, 2, 3}) {
    TraceRecorder trace;
    comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
    connect.trace = &trace;
    comm::run_local_ranks(2, connect, [&](comm::World& world) {
      EngineConfig config = config_of({2, 1, DType::bf16});
      config.zero.stage = stage;
      config.zero.offload_optimizer.device = OffloadDevice::cpu;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      const Allocator& memory = world.context().allocator();
      EXPECT_EQ(memory.report().at(Tier::device, Label::optimizer).peak, 0);
      EXPECT_GT(memory.report().at(Tier::pinned_host, Label::optimizer).live, 0);
      engine.backward(engine.forward(make_batch(world.rank())));
      world.context().synchronize();
      EXPECT_GT(memory.report().at(Tier::pinned_host, Label::gradients).live, 0);
      engine.step();
      EXPECT_EQ(memory.report().at(Tier::pinned_host, Label::gradients).live, 0);
      EXPECT_EQ(memory.report().at(Tier::device, Label::gradients).live, 0);
    });
    int transfers = 0;
    for (const TraceEvent& event : trace.events()) transfers += event.name == "transfer" ? 1 : 0;
    EXPECT_GT(transfers, 2 * 2 * 6) << stage;  // ranks, ways, groups
  }
}

TEST(Placement, ValuesReadAndSetBetweenStepsAreThoseOfTheDevice) {
  const offload::SwapFolder folder;
  const auto values = [&](OffloadDevice device) {
    std::vector<float> seen;
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = config_of({2, 1, DType::bf16});
      config.zero.stage = 2;
      config.zero.sub_group_size = 2048;
      config.zero.offload_optimizer = {.device = device, .nvme_path = folder.path()};
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      const auto look = [&] {
        for (const char* name :
             {"transformer.h.1.mlp.c_fc.weight", "transformer.h.1.ln_1.weight"}) {
          for (const Tensor& tensor :
               {engine.parameter(name), engine.optimizer_state(name, "exp_avg_sq")}) {
            const auto found = tensor.to_vector<float>();
            if (world.rank() == 0) seen.insert(seen.end(), found.begin(), found.end());
          }
        }
      };
      for (int64_t step = 0; step < 3; ++step) {
        look();
        engine.backward(engine.forward(make_batch(step * 2 + world.rank())));
        engine.step();
        look();
        engine.edit({"transformer.h.1.mlp.c_fc.weight", "transformer.h.2.ln_2.bias"},
                    [&](Engine::EditedParameters& edited) {
                      for (auto& [name, tensor] : edited) {
                        auto numbers = tensor.to_vector<float>();
                        for (float& number : numbers) number *= 1.25f;
                        tensor = Tensor::from<float>(std::span<const float>(numbers),
                                                     tensor.shape(), DType::f32);
                      }
                    });
      }
      look();
    });
    return seen;
  };
  const std::vector<float> reference = values(OffloadDevice::none);
  EXPECT_GT(reference.size(), 10'000u);
  EXPECT_TRUE(values(OffloadDevice::cpu) == reference);
  EXPECT_TRUE(values(OffloadDevice::nvme) == reference);
}

// Master weights and two moments of every trained element cross to the disk once per step and rank,
// past the page cache.
TEST(Placement, OnNvme_StatesTravelOncePerStepAndAreNowhereElse) {
  const offload::SwapFolder folder;
  if (!offload::open_unnamed(folder.path()).is_direct()) GTEST_SKIP() << "no O_DIRECT there";
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of({1, 1, DType::bf16});
    config.zero.stage = 3;
    config.zero.sub_group_size = 2048;
    config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                     .nvme_path = folder.path(),
                                     .pipeline_read = true,
                                     .pipeline_write = true};
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    int64_t trained = 0;
    for (const ShardGroup& group :
         make_shard_groups(model, 1, config.zero.param_persistence_threshold)) {
      trained += group.trained_numel();
    }
    const MemoryReport report = world.context().allocator().report();
    EXPECT_EQ(report.at(Tier::nvme, Label::optimizer).live, trained * 12);
    EXPECT_EQ(report.at(Tier::device, Label::optimizer).peak, 0);
    EXPECT_EQ(report.at(Tier::pinned_host, Label::optimizer).peak, 0);
    // Staging memory has three tiles of three planes, and two of 16-bit weights.
    EXPECT_EQ(report.at(Tier::pinned_host, Label::staging).live, 3 * 2048 * 12 + 2 * 2048 * 2);
    engine.backward(engine.forward(make_batch(0)));
    const int64_t before = bytes_of_process("write_bytes:");
    engine.step();
    engine.finish_update();
    EXPECT_EQ(world.context().allocator().report().at(Tier::pinned_host, Label::gradients).live, 0);
    EXPECT_GE(bytes_of_process("write_bytes:") - before, trained * 12);
    EXPECT_TRUE(folder.is_empty());
  });
}

TEST(Placement, AClientsOwnOptimizerNeedsLeaveToComputeOnTheHost) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of({});
    config.zero.stage = 1;
    config.zero.allow_untested_optimizer = true;
    config.zero.offload_optimizer.device = OffloadDevice::cpu;
    const auto make = [&] {
      nn::Gpt2 model(tiny_config());
      EngineOptions options;
      options.optimizer = optim::make_optimizer(config.optimizer);
      Engine engine(model, config, world, std::move(options));
    };
    EXPECT_THROW(make(), ConfigError);
    config.zero.force_cpu_optimizer = false;
    make();
  });
}

}  // namespace placement_test
}  // namespace zinc::zero
