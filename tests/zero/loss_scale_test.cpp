// The scale of an fp16 loss multiplies the mean of a micro-batch, as DeepSpeed's does: how many
// steps a run skips before the scale fits does not depend on the micro-batch's tokens, and all
// stages keep equal bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"
#include "zero/update/loss_totals.h"

namespace zinc::zero {
namespace loss_scale_test {

constexpr int kScaleWorld = 2;
constexpr int64_t kScaleSequence = 16;

// Every position has a target.
nn::Batch full_batch(int64_t index, int64_t sequences) {
  nn::Batch batch = test::make_batch(index, sequences, kScaleSequence);
  batch.tensors.set("labels", batch["input_ids"]);
  batch.num_targets = batch.num_tokens;
  return batch;
}

struct ScaledRun {
  std::vector<StepOutcome> outcomes;
  double scale = 0.0;  // after the last step
  std::vector<float> weights;
  int64_t skipped() const { return std::ranges::count(outcomes, StepOutcome::skipped_overflow); }
};

ScaledRun scaled_run(int64_t tokens, int stage, LossReduction reduction, int64_t steps) {
  EngineConfig config = test::training_config(1, DType::f16, ReduceSchedule::boundary);
  config.batch.micro_batch = tokens / kScaleSequence;
  config.batch.sequence = kScaleSequence;
  config.precision.loss_scale = {.dynamic = true};  // the defaults: 2^16
  config.gradient.loss_reduction = reduction;
  config.zero.stage = stage;
  ScaledRun run;
  comm::run_local_ranks(kScaleWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2Config tiny = test::tiny_config();
    tiny.num_layers = 2;
    nn::Gpt2 model(tiny);
    Engine engine(model, config, world);
    std::vector<StepOutcome> outcomes;
    for (int64_t step = 0; step < steps; ++step) {
      engine.backward(
          engine.forward(full_batch(kScaleWorld * step + world.rank(), config.batch.micro_batch)));
      outcomes.push_back(engine.step().outcome);
    }
    std::vector<float> weights = test::weights_of(engine);
    if (!world.is_main()) return;
    run = {outcomes, engine.state().loss_scale.scale, std::move(weights)};
  });
  return run;
}

// The mean's gradients are below 1 in the first step, and 2^16 times them below f16's largest
// number; the second step has one above it. A scale of the sum of 32768 losses would have to fall
// 15 times more.
TEST(LossScaleOfTheMean, SkipsTheSameStepAtAnyNumberOfTokens) {
  for (const int64_t tokens : {64, 2048, 32'768}) {
    const ScaledRun run = scaled_run(tokens, 0, LossReduction::tokens, 2);
    EXPECT_THAT(run.outcomes,
                testing::ElementsAre(StepOutcome::applied, StepOutcome::skipped_overflow))
        << tokens;
    EXPECT_EQ(run.scale, 0x1p16) << tokens;
  }
}

// DeepSpeed's mean of means starts backward from scale / targets: with a power of two of targets
// that is the same number.
TEST(LossScaleOfTheMean, IsThatOfAMeanOfMeans_ToTheBit) {
  const ScaledRun tokens = scaled_run(64, 0, LossReduction::tokens, 3);
  const ScaledRun means = scaled_run(64, 0, LossReduction::micro_batch, 3);
  EXPECT_TRUE(tokens.outcomes == means.outcomes);
  EXPECT_TRUE(tokens.weights == means.weights);
}

TEST(LossScaleOfTheMean, LeavesEqualBitsOnAllStages) {
  const ScaledRun whole = scaled_run(2048, 0, LossReduction::tokens, 3);
  ASSERT_FALSE(whole.weights.empty());
  for (const int stage : {1, 2, 3}) {
    const ScaledRun sharded = scaled_run(2048, stage, LossReduction::tokens, 3);
    EXPECT_TRUE(sharded.outcomes == whole.outcomes) << stage;
    EXPECT_TRUE(sharded.weights == whole.weights) << stage;
  }
}

TEST(LossScaleOfTheMean, IsDividedByThePowerOfTwoAboveThePositions) {
  EngineConfig config;
  config.precision.dtype = DType::f16;
  for (const auto& [sequences, positions, divisor] :
       {std::tuple{1, 1, 1.0}, {1, 2, 2.0}, {3, 1, 4.0}, {16, 128, 2048.0}, {16, 129, 4096.0}}) {
    config.batch = {.micro_batch = sequences, .sequence = positions};
    EXPECT_EQ(config.loss_divisor(), divisor) << sequences << " x " << positions;
    EXPECT_EQ(LossTotals(LossReduction::tokens, divisor).seed(65536.0, 5), 65536.0 / divisor);
  }
  config.gradient.loss_reduction = LossReduction::micro_batch;
  EXPECT_EQ(config.loss_divisor(), 1.0);
  config.gradient.loss_reduction = LossReduction::tokens;
  config.precision.dtype = DType::bf16;
  EXPECT_EQ(config.loss_divisor(), 1.0);
}

TEST(LossScaleOfTheMean, LongerSequencesThanTheScaleKnows_AreRefused) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = test::training_config(1, DType::f16, ReduceSchedule::boundary);
    config.batch.sequence = 8;
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config, world);
    try {
      engine.forward(test::make_batch(0));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the batch has 9 positions per sequence"));
      EXPECT_THAT(error.what(), testing::HasSubstr("measured by 8"));
    }
  });
}

}  // namespace loss_scale_test
}  // namespace zinc::zero
