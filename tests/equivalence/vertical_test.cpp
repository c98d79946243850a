// All micro-batches of a step side by side, layer by layer, give the bits that they give one after
// the other, wherever states and parameters live.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "nn/models/llama.h"
#include "offload/swap_space.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace vertical_test {

using namespace test;

class Vertical : public testing::TestWithParam<Case> {};

TEST_P(Vertical, ChangesNoBitOnAnyTier) {
  const Case c = GetParam();
  const int kSteps = c.dtype == DType::f16 ? 4 : 2;  // f16: the first ones overflow
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, kSteps);
  config.pass_order = PassOrder::vertical;
  EXPECT_TRUE(run(c, config, kSteps) == reference) << "stage 0";
  for (const OffloadDevice optimizer : kDevices) {
    for (const OffloadDevice parameters : kDevices) {
      if (c.world > 1 && optimizer != parameters) continue;
      EXPECT_TRUE(run(c, placed(config, optimizer, parameters, folder), kSteps) == reference)
          << "optimizer on " << name_of(optimizer) << ", parameters on " << name_of(parameters);
    }
  }
  EXPECT_TRUE(folder.is_empty());
}

// Three and more micro-batches: the order of two changes no sum.
INSTANTIATE_TEST_SUITE_P(Matrix, Vertical,
                         testing::Values(Case{1, 3, DType::f32, ReduceSchedule::micro_step},
                                         Case{3, 3, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 4, DType::bf16, ReduceSchedule::micro_step},
                                         Case{2, 3, DType::f16, ReduceSchedule::micro_step},
                                         Case{2, 3, DType::f32, ReduceSchedule::micro_step,
                                              Determinism::world},
                                         Case{2, 3, DType::f32, ReduceSchedule::micro_step,
                                              Determinism::run, Family::t5},
                                         Case{2, 3, DType::bf16, ReduceSchedule::micro_step,
                                              Determinism::run, Family::roberta}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str(name_of(c.family), "World", c.world, "Accumulation",
                                      c.accumulation, name_of(c.dtype),
                                      c.determinism == Determinism::world ? "World" : "");
                         });

class VerticalOf : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Models, VerticalOf, testing::Values(Family::gpt2, Family::t5),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(VerticalOf, RecomputationAndMeansOfMeansChangeNoBit) {
  const Case c{2, 3, DType::bf16, ReduceSchedule::micro_step, Determinism::run, GetParam()};
  for (const int stage : {1, 3}) {
    EngineConfig config = config_of(c);
    config.zero.stage = stage;
    config.gradient.loss_reduction = LossReduction::micro_batch;
    const Outcome reference = run(c, config, 2);
    config.pass_order = PassOrder::vertical;
    for (const int64_t every : {0, 1, 3}) {
      config.recompute.every_blocks = every;
      config.recompute.cpu_checkpointing = every == 1;
      EXPECT_TRUE(run(c, config, 2) == reference) << "stage " << stage << ", every " << every;
    }
  }
}

TEST(Vertical, ShuffledExecutionChangesNoBit) {
  const Case c{2, 3, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.recompute.every_blocks = 1;
  config.recompute.cpu_checkpointing = true;
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  config.pass_order = PassOrder::vertical;
  const EngineConfig changed = placed(config, OffloadDevice::nvme, OffloadDevice::nvme, folder);
  for (const uint64_t seed : {1, 2}) {
    EXPECT_TRUE(run(c, changed, 2,
                    {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}) ==
                reference)
        << seed;
  }
}

// Every byte of the parameters comes from the disk once in each direction of a step, however many
// micro-batches it has.
TEST(Vertical, ParametersTravelOncePerStep) {
  const offload::SwapFolder folder;
  const auto read_per_step = [&](PassOrder order, int64_t accumulation) {
    int64_t bytes = 0;
    TraceRecorder trace;
    comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
    connect.trace = &trace;
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      EngineConfig config =
          placed(config_of({1, accumulation, DType::bf16, ReduceSchedule::micro_step}),
                 OffloadDevice::none, OffloadDevice::nvme, folder);
      config.pass_order = order;
      config.recompute.every_blocks = 1;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      const offload::SwapTraffic before = engine.usage().swap;
      for (int64_t i = 0; i < accumulation; i += config.batches_together()) {
        std::vector<nn::Batch> batches;
        for (int64_t j = 0; j < config.batches_together(); ++j) {
          batches.push_back(make_batch(i + j));
        }
        engine.run_passes(batches);
      }
      world.context().synchronize();
      bytes = (engine.usage().swap - before).bytes_read;
    });
    return bytes;
  };
  const int64_t one = read_per_step(PassOrder::horizontal, 1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(read_per_step(PassOrder::vertical, 4), one);
  EXPECT_GE(read_per_step(PassOrder::horizontal, 4), 3 * one);
}

// A head makes the gradient of its weight with the loss. There is one at a time.
TEST(Vertical, GradientsOfAHead_AreNotKeptPerMicroBatch) {
  const auto peak = [](int64_t accumulation) {
    int64_t bytes = 0;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::LlamaConfig shape = tiny_llama_config();
      shape.vocab_size = 3000;
      nn::Llama model(shape);
      EngineConfig config = training_config(accumulation, DType::bf16, ReduceSchedule::micro_step);
      config.zero.stage = 2;
      config.pass_order = PassOrder::vertical;
      Engine engine(model, config, world);
      std::vector<nn::Batch> batches;
      for (int64_t i = 0; i < accumulation; ++i) batches.push_back(make_batch(i));
      engine.run_passes(batches);
      engine.step();
      bytes = world.context().allocator().report().at(Tier::device, Label::gradients).peak;
    });
    return bytes;
  };
  EXPECT_EQ(peak(6), peak(3));
}

TEST(Vertical, OneMicroBatchAtATimeIsAnError) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of({1, 2, DType::f32, ReduceSchedule::micro_step});
    config.pass_order = PassOrder::vertical;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    EXPECT_THROW(engine.forward(make_batch(0)), InvalidArgument);
    EXPECT_THROW(engine.run_passes(std::vector{make_batch(0)}), InvalidArgument);
    const std::vector<nn::Batch> batches{make_batch(0), make_batch(1)};
    engine.run_passes(batches);
    EXPECT_THROW(engine.run_passes(batches), InvalidArgument);
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
    config.gradient.reduce_schedule = ReduceSchedule::boundary;
    EXPECT_THROW(Engine(model, config, world), ConfigError);
  });
}

}  // namespace vertical_test
}  // namespace zinc::zero
