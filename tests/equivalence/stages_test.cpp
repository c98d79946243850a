// The same bits whatever the memory strategy: stages 0 to 3 against each other, judged in f32 with
// bf16 and f16 beside it; worlds 1 to 4, 3 included; AdamW, clipping and dropout.
#include <gtest/gtest.h>

#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "tests/equivalence/training_run.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace stages_test {

using test::make_batch;
using test::tiny_config;
using training::Case;
using training::config_of;
using training::describe;
using training::Family;
using training::Outcome;
using training::run;

class Stages : public testing::TestWithParam<Case> {};

TEST_P(Stages, GiveTheSameBits) {
  const Case c = GetParam();
  constexpr int kSteps = 6;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, kSteps);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  for (const int stage : {1, 2, 3}) {
    if (stage >= 2 && c.schedule == ReduceSchedule::boundary && c.accumulation > 1) continue;
    EngineConfig sharded = config;
    sharded.zero.stage = stage;
    if (stage >= 2) sharded.gradient.reduce_schedule.reset();
    EXPECT_EQ(run(c, sharded, kSteps), reference) << "stage " << stage << ", " << describe(c);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, Stages,
    testing::Values(Case{1, 1}, Case{2, 1}, Case{3, 1}, Case{4, 1},
                    Case{3, 2, DType::f32, ReduceSchedule::boundary},
                    Case{2, 4, DType::f32, ReduceSchedule::micro_step},
                    Case{3, 2, DType::f32, ReduceSchedule::micro_step}, Case{3, 1, DType::bf16},
                    Case{2, 2, DType::bf16, ReduceSchedule::micro_step}, Case{3, 1, DType::f16},
                    Case{2, 2, DType::bf16, ReduceSchedule::boundary}, Case{5, 1}, Case{6, 1},
                    Case{7, 1}, Case{8, 1},
                    Case{3, 1, DType::f32, ReduceSchedule::boundary, Family::llama},
                    Case{2, 2, DType::f32, ReduceSchedule::micro_step, Family::llama},
                    Case{4, 1, DType::bf16, ReduceSchedule::boundary, Family::llama},
                    Case{3, 2, DType::f32, ReduceSchedule::micro_step, Family::t5},
                    Case{2, 1, DType::bf16, ReduceSchedule::boundary, Family::t5},
                    Case{2, 2, DType::f32, ReduceSchedule::micro_step, Family::roberta},
                    Case{3, 1, DType::bf16, ReduceSchedule::boundary, Family::roberta},
                    Case{.world = 3, .wire = DType::bf16}, Case{.world = 2, .wire = DType::f16},
                    Case{.world = 3, .accumulation = 2, .wire = DType::bf16},
                    Case{.world = 3, .dtype = DType::bf16, .wire = DType::f32},
                    Case{.world = 3, .accumulation = 2, .dtype = DType::bf16, .wire = DType::bf16},
                    Case{.world = 2, .dtype = DType::bf16, .wire = DType::f16},
                    Case{.world = 3,
                         .accumulation = 2,
                         .dtype = DType::bf16,
                         .schedule = ReduceSchedule::micro_step,
                         .wire = DType::f16}),
    [](const auto& info) {
      const Case& c = info.param;
      return str("World", c.world, "Accumulation", c.accumulation, name_of(c.dtype),
                 c.schedule == ReduceSchedule::boundary ? "Boundary" : "MicroStep",
                 test::name_of(c.family), c.wire ? str("Wire", name_of(*c.wire)) : "");
    });

class Stage3Of : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Models, Stage3Of, testing::Values(Family::gpt2, Family::t5),
                         [](const auto& info) { return std::string(test::name_of(info.param)); });

TEST_P(Stage3Of, BucketsPrefetchReuseAndRecomputationChangeNoBit) {
  const Case c{3, 1, DType::f32, ReduceSchedule::boundary, GetParam()};
  EngineConfig config = config_of(c);
  config.zero.stage = 3;
  const Outcome reference = run(c, config, 4);
  const auto same = [&](const char* what, const auto& change) {
    EngineConfig changed = config;
    change(changed);
    EXPECT_EQ(run(c, changed, 4), reference) << what;
  };
  same("one unit per bucket", [](EngineConfig& e) {
    e.zero.reduce_bucket_size = 1;
    e.zero.allgather_bucket_size = 1;
  });
  same("no prefetch", [](EngineConfig& e) { e.zero.prefetch_bucket_size = 0; });
  same("nothing lives", [](EngineConfig& e) { e.zero.max_live_parameters = 0; });
  same("everything is kept", [](EngineConfig& e) { e.zero.max_reuse_distance = 1'000'000'000; });
  same("no overlap", [](EngineConfig& e) { e.zero.overlap_comm = false; });
  same("everything persistent",
       [](EngineConfig& e) { e.zero.param_persistence_threshold = 1'000'000; });
  same("a part is resident", [](EngineConfig& e) {
    e.zero.max_live_parameters = 0;
    e.zero.resident_memory = 60'000;
  });
  same("recomputation of the first block",
       [](EngineConfig& e) { e.recompute = {.every_blocks = 1, .most_blocks = 1}; });
  same("recomputation", [](EngineConfig& e) { e.recompute.every_blocks = 1; });
  same("recomputation of pairs", [](EngineConfig& e) { e.recompute.every_blocks = 2; });
  same("inputs of recomputation in host memory",
       [](EngineConfig& e) { e.recompute = {.every_blocks = 1, .cpu_checkpointing = true}; });
  same("inputs of recomputation side by side", [](EngineConfig& e) {
    e.recompute = {.every_blocks = 1, .contiguous_memory_optimization = true};
  });
}

// Weights that stay through the micro-batches of a step are those of the step, also where updates
// end late, evaluations come between and shards lie elsewhere; under shuffled execution.
TEST_P(Stage3Of, ResidentWeightsChangeNoBit) {
  for (const int64_t accumulation : {2, 3, 5}) {
    const Case c{3, accumulation, DType::bf16, ReduceSchedule::micro_step, GetParam()};
    EngineConfig config = config_of(c);
    config.zero.stage = 3;
    config.zero.param_persistence_threshold = 0;
    config.zero.max_live_parameters = 0;
    config.zero.max_reuse_distance = 0;
    const Outcome reference = run(c, config, 3);
    for (const int64_t bytes : {20'000, 60'000, 1'000'000'000}) {
      for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
        EngineConfig resident = config;
        resident.zero.resident_memory = bytes;
        resident.zero.offload_optimizer.device = device;
        resident.zero.offload_param.device = device;
        if (device == OffloadDevice::cpu) resident.overlap_update = true;
        for (const uint64_t seed : {1, 2}) {
          EXPECT_EQ(run(c, resident, 3,
                        {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}),
                    reference)
              << accumulation << " " << bytes << " " << name_of(device) << " " << seed;
        }
      }
    }
  }
}

struct InputsIn {
  const char* name;
  bool host;
  bool contiguous;
};

class SavedInputsOf : public testing::TestWithParam<InputsIn> {
 protected:
  static RecomputeConfig config() {
    return {.every_blocks = 1,
            .cpu_checkpointing = GetParam().host,
            .contiguous_memory_optimization = GetParam().contiguous};
  }
};

INSTANTIATE_TEST_SUITE_P(Recomputation, SavedInputsOf,
                         testing::Values(InputsIn{"HostMemory", true, false},
                                         InputsIn{"HostMemorySideBySide", true, true},
                                         InputsIn{"DeviceSideBySide", false, true}),
                         [](const auto& info) { return info.param.name; });

TEST_P(SavedInputsOf, ChangeNoBitUnderShuffledExecution) {
  const Case c{2, 2, DType::f32, ReduceSchedule::micro_step};
  EngineConfig plain = config_of(c);
  plain.zero.stage = 3;
  const Outcome reference = run(c, plain, 3);
  EngineConfig changed = plain;
  changed.recompute = config();
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(run(c, changed, 3,
                  {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}),
              reference)
        << seed;
  }
}

// The memory that a training of two steps took, and the part that was there at its end.
MemoryReport memory_of(const RecomputeConfig& recompute) {
  MemoryReport report;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch.micro_batch = 8;
    config.recompute = recompute;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    for (int step = 0; step < 2; ++step) {
      engine.backward(engine.forward(make_batch(0, 8, 16)));
      engine.step();
    }
    report = world.context().allocator().report();
  });
  return report;
}

TEST_P(SavedInputsOf, LieWhereTheConfigurationSays) {
  constexpr int64_t kInputs = 4 * 8 * 16 * 24 * 4;  // of four blocks: [8, 16, 24] f32
  const MemoryReport kept = memory_of({.every_blocks = 1});
  const MemoryReport report = memory_of(config());
  EXPECT_EQ(kept.at(Tier::pinned_host).peak, 0);
  EXPECT_EQ(report.at(Tier::pinned_host).peak, GetParam().host ? kInputs : 0);
  if (GetParam().host) {
    EXPECT_LT(report.at(Tier::device, Label::activations).peak,
              kept.at(Tier::device, Label::activations).peak);
  }
  // Kept for the next step, or given back.
  const Tier tier = GetParam().host ? Tier::pinned_host : Tier::device;
  EXPECT_EQ(report.at(tier, Label::activations).live, GetParam().contiguous ? kInputs : 0);
}

// Work runs as late, as early or in as random an order as events allow: a missing wait shows as a
// wrong bit.
TEST(Stage3, ShuffledExecutionChangesNoBit) {
  const Case c{2, 2, DType::f32, ReduceSchedule::micro_step};
  for (const int stage : {1, 2, 3}) {
    EngineConfig config = config_of(c);
    config.zero.stage = stage;
    config.zero.overlap_comm = true;
    const Outcome reference = run(c, config, 3);
    for (const uint64_t seed : {1, 2, 3}) {
      EXPECT_EQ(run(c, config, 3,
                    {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}),
                reference)
          << "stage " << stage << " seed " << seed;
    }
  }
}

TEST(Stages, LaggingRanksChangeNoBit) {
  for (const Family family : test::kFamilies) {
    const Case c{3, 2, DType::f32, ReduceSchedule::micro_step, family};
    EngineConfig config = config_of(c);
    config.zero.stage = 0;
    const Outcome reference = run(c, config, 3);
    for (const int stage : {2, 3}) {
      config.zero.stage = stage;
      config.zero.overlap_comm = true;
      EXPECT_EQ(run(c, config, 3, {.delays = true}), reference) << stage << describe(c);
    }
  }
}

// "world": only the micro-batches per step count, not how many ranks share them out.
TEST(World, SizeChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Outcome reference;
    for (const auto& [world, accumulation] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1}}) {
      for (const int stage : {0, 1, 2, 3}) {
        Case c{world, accumulation, dtype, ReduceSchedule::micro_step};
        EngineConfig config = config_of(c);
        config.determinism = Determinism::world;
        config.zero.stage = stage;
        const Outcome outcome = run(c, config, 4);
        if (reference.losses.empty()) reference = outcome;
        EXPECT_EQ(outcome, reference) << "stage " << stage << ", " << describe(c);
      }
    }
  }
}

TEST(World, OddNumbersOfMicroStepsFollowTheSameTree) {
  Outcome reference;
  for (const auto& [world, accumulation] : {std::pair{1, 6}, std::pair{2, 3}}) {
    Case c{world, accumulation, DType::f32, ReduceSchedule::micro_step};
    EngineConfig config = config_of(c);
    config.determinism = Determinism::world;
    config.zero.stage = 2;
    const Outcome outcome = run(c, config, 4);
    if (reference.losses.empty()) reference = outcome;
    EXPECT_EQ(outcome, reference) << describe(c);
  }
}

// Without it the world's size shows: the suite above can fail.
TEST(World, RunModeDiffersBetweenWorlds) {
  Case one{1, 4, DType::f32, ReduceSchedule::micro_step};
  Case four{4, 1, DType::f32, ReduceSchedule::micro_step};
  EXPECT_NE(run(one, config_of(one), 4), run(four, config_of(four), 4));
}

// 16-bit gradients travel once per micro-batch: gathering everything and adding it up at home would
// send more.
TEST(World, SendsWhatARingOfReductionsSends) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    Case c{2, 2, DType::bf16, ReduceSchedule::micro_step};
    EngineConfig config = config_of(c);
    config.determinism = Determinism::world;
    config.zero.stage = 2;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    int64_t padded = 0;
    for (const ShardGroup& group :
         make_shard_groups(model, 2, config.zero.param_persistence_threshold)) {
      padded += group.trained_numel();
    }
    const int64_t before = world.communicator().bytes_sent();
    for (int64_t micro = 0; micro < 2; ++micro) {
      engine.backward(engine.forward(make_batch(micro * 2 + world.rank())));
      if (micro == 0) {
        engine.step();
        world.context().synchronize();
        EXPECT_EQ(world.communicator().bytes_sent() - before, padded / 2 * 2);
      }
    }
    engine.step();
  });
}

TEST(World, NeedsAPowerOfTwo) {
  comm::run_local_ranks(3, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of({3, 1});
    config.determinism = Determinism::world;
    nn::Gpt2 model(tiny_config());
    EXPECT_THROW(Engine(model, config, world), ConfigError);
  });
}

// Live bytes of weights, gradients and states fall as the stages say.
TEST(Stages, MemoryFallsWithTheStage) {
  std::vector<int64_t> optimizer;
  std::vector<int64_t> parameters;
  for (const int stage : {0, 1, 2, 3}) {
    comm::run_local_ranks(4, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      const Case c{4, 1};
      EngineConfig config = config_of(c);
      config.zero.stage = stage;
      config.zero.param_persistence_threshold = 0;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      const MemoryReport report = world.context().allocator().report();
      if (world.rank() != 0) return;
      optimizer.push_back(report.at(Tier::device, Label::optimizer).live);
      parameters.push_back(report.at(Tier::device, Label::parameters).live);
    });
  }
  EXPECT_EQ(optimizer[0], 4 * optimizer[1]);
  EXPECT_EQ(optimizer[1], optimizer[2]);
  EXPECT_EQ(optimizer[1], optimizer[3]);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_EQ(parameters[0], 4 * parameters[3]);
}

// The equalities above mean little if nothing is ever gathered, given back or fetched ahead.
TEST(Stage3, GathersReleasesAndPrefetchesEveryStep) {
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    const Case c{1, 1};
    EngineConfig config = config_of(c);
    config.zero.stage = 3;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    for (int64_t step = 0; step < 2; ++step) {
      trace.clear();
      engine.backward(engine.forward(make_batch(step)));
      engine.step();
      world.context().synchronize();
      int gathers = 0;
      int prefetches = 0;
      int releases = 0;
      for (const TraceEvent& event : trace.events()) {
        gathers += event.kind == TraceKind::gather ? 1 : 0;
        prefetches += event.kind == TraceKind::prefetch ? 1 : 0;
        releases += event.kind == TraceKind::release ? 1 : 0;
      }
      // Six groups are gathered for forward and again for backward.
      EXPECT_GE(gathers + prefetches, 11) << step;
      EXPECT_GT(prefetches, 0) << step;
      EXPECT_EQ(releases, gathers + prefetches) << step;
    }
  });
}

}  // namespace stages_test
}  // namespace zinc::zero
