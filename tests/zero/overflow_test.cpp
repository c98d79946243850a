// Gradients that are not finite, on every stage: the step is skipped and changes nothing, the loss
// scale follows its rules, and where it cannot fall any further the run ends with a named error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/ops/linear.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace overflow_test {

using test::make_batch;
using test::weights_and_states_of;
using testing::HasSubstr;

constexpr int kWorld = 2;

// A GPT-2 whose gradients can be made infinite.
struct Explosive : nn::Gpt2 {
  static nn::Gpt2Config config() {
    nn::Gpt2Config config = test::tiny_config();
    config.num_layers = 1;
    return config;
  }
  Explosive() : Gpt2(config()) {}
  Tensor loss(const nn::Batch& batch) override {
    const Tensor sum = Gpt2::loss(batch);
    return explodes ? autograd::scale(sum, std::numeric_limits<double>::infinity()) : sum;
  }
  bool explodes = false;
};

EngineConfig config_of(int stage, DType dtype, const optim::LossScaleConfig& scale = {}) {
  EngineConfig config = test::training_config(1, dtype, ReduceSchedule::boundary);
  config.precision.check_overflow = true;
  config.precision.loss_scale = scale;
  config.schedule.kind = optim::ScheduleKind::linear;  // another learning rate in every step
  config.schedule.total_steps = 50;
  config.zero.stage = stage;
  return config;
}

optim::LossScaleConfig dynamic(int power, int hysteresis) {
  return {.dynamic = true, .initial_scale_power = power, .window = 3, .hysteresis = hysteresis};
}

// Trains on two ranks: in a step of `pattern` that is 'x' the gradient of the last rank alone is
// not finite; `each` is called after every step with what it was ('x', '.') and returned.
template <class Each>
void train(const std::string& pattern, const EngineConfig& config, const Each& each) {
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    Explosive model;
    Engine engine(model, config, world);
    int64_t clean = 0;  // the batch depends on the clean steps before it
    for (const char step : pattern) {
      model.explodes = step == 'x' && world.rank() == kWorld - 1;
      engine.backward(engine.forward(make_batch(kWorld * clean + world.rank())));
      if (step == '.') ++clean;
      each(world, engine, step);
    }
  });
}

// A parameter, and whose shard of it where there are shards.
testing::Matcher<std::string> NamesThePlace(int stage) {
  if (stage == 0) {
    return testing::AllOf(HasSubstr("transformer."), testing::Not(HasSubstr("in the shard")));
  }
  return testing::ContainsRegex("transformer\\.[a-z0-9_.]+, in the shard of rank [01]");
}

using optim::OptimizerKind;

class Overflow : public testing::TestWithParam<std::tuple<int, DType, OptimizerKind>> {};
INSTANTIATE_TEST_SUITE_P(Stages, Overflow,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(DType::f16, DType::bf16, DType::f32),
                                          testing::Values(OptimizerKind::adamw,
                                                          OptimizerKind::schedule_free)));
INSTANTIATE_TEST_SUITE_P(Signs, Overflow,
                         testing::Combine(testing::Values(0, 1, 2),
                                          testing::Values(DType::f16, DType::bf16, DType::f32),
                                          testing::Values(OptimizerKind::one_bit_adam)));

TEST_P(Overflow, SkippedStep_ChangesNoBitOfWeightsStatesAndSchedule) {
  const auto [stage, dtype, rule] = GetParam();
  const bool scaled = dtype == DType::f16;
  EngineConfig config = config_of(stage, dtype, scaled ? dynamic(8, 2) : optim::LossScaleConfig{});
  config.optimizer.kind = rule;
  config.optimizer.one_bit.freeze_step = 1;
  // Small steps: the second moment of one step divides badly.
  if (rule == OptimizerKind::one_bit_adam) config.optimizer.hyper.lr = 1e-7;
  const auto names_the_place = rule == OptimizerKind::one_bit_adam
                                   ? testing::Matcher<std::string>(HasSubstr(", of rank 1"))
                                   : NamesThePlace(stage);
  int64_t applied = 0;
  int64_t skipped = 0;
  std::vector<float> at_the_end;
  train("..x.xx.", config, [&](comm::World& world, Engine& engine, char step) {
    const double lr = engine.learning_rate();
    const double scale = engine.state().loss_scale.scale;
    const std::vector<float> before = weights_and_states_of(engine);
    const std::vector<double> carried = engine.state().carried;
    const StepResult result = engine.step();
    const std::vector<float> after = weights_and_states_of(engine);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_EQ(result.learning_rate, lr);
    if (step == 'x') {
      EXPECT_EQ(result.outcome, StepOutcome::skipped_overflow);
      EXPECT_THAT(result.overflow, names_the_place);
      EXPECT_TRUE(after == before);
      EXPECT_EQ(engine.state().carried, carried);
      EXPECT_EQ(engine.learning_rate(), lr);
    } else {
      EXPECT_EQ(result.outcome, StepOutcome::applied);
      EXPECT_TRUE(result.overflow.empty());
      EXPECT_FALSE(after == before);
      EXPECT_LT(engine.learning_rate(), lr);
    }
    if (!world.is_main()) return;
    (step == 'x' ? skipped : applied) += 1;
    EXPECT_EQ(engine.state().applied, applied);
    EXPECT_EQ(engine.state().skipped(), skipped);
    at_the_end = after;
  });
  EXPECT_EQ(skipped, 3);
  if (scaled) return;  // another scale rounds the gradient otherwise
  std::vector<float> without;
  train("....", config, [&](comm::World& world, Engine& engine, char) {
    engine.step();
    const std::vector<float> values = weights_and_states_of(engine);
    if (world.is_main()) without = values;
  });
  EXPECT_TRUE(at_the_end == without) << "not as if the skipped steps had never been";
}

class LossScale : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, LossScale, testing::Values(0, 1, 2, 3));

// The scale that each step used, and that of the next.
std::vector<double> scales(const std::string& pattern, int stage,
                           const optim::LossScaleConfig& scale) {
  std::vector<double> seen;
  train(pattern, config_of(stage, DType::f16, scale),
        [&](comm::World& world, Engine& engine, char step) {
          const StepResult result = engine.step();
          EXPECT_EQ(result.outcome,
                    step == 'x' ? StepOutcome::skipped_overflow : StepOutcome::applied);
          if (!world.is_main()) return;
          if (seen.empty()) seen.push_back(result.loss_scale);
          EXPECT_EQ(result.loss_scale, seen.back());
          seen.push_back(engine.state().loss_scale.scale);
        });
  return seen;
}

TEST_P(LossScale, FollowsHysteresisWindowAndMinimum) {
  using Scales = std::vector<double>;
  EXPECT_EQ(scales("x.x", GetParam(), dynamic(4, 1)), (Scales{16, 8, 8, 4}));
  EXPECT_EQ(scales("x.x.x", GetParam(), dynamic(4, 2)), (Scales{16, 16, 16, 8, 8, 4}));
  optim::LossScaleConfig consecutive = dynamic(4, 2);
  consecutive.consecutive_hysteresis = true;
  EXPECT_EQ(scales("x.x.xx", GetParam(), consecutive), (Scales{16, 16, 16, 16, 16, 16, 8}));
  EXPECT_EQ(scales("x....", GetParam(), dynamic(4, 1)), (Scales{16, 8, 8, 8, 8, 16}));
  optim::LossScaleConfig minimum = dynamic(4, 1);
  minimum.min_scale = 6.0;
  EXPECT_EQ(scales("xx", GetParam(), minimum), (Scales{16, 8, 6}));
  EXPECT_EQ(scales("xx.", GetParam(), {.static_scale = 32.0}), (Scales{32, 32, 32, 32}));
}

// The message that the fourth step throws on every rank; the weights are those that the first step
// left.
std::string last_words(const EngineConfig& config) {
  std::vector<std::string> words(kWorld);
  std::vector<std::vector<float>> before(kWorld);
  train(".xxx", config, [&](comm::World& world, Engine& engine, char) {
    const auto rank = static_cast<size_t>(world.rank());
    try {
      const StepResult result = engine.step();
      if (result.outcome == StepOutcome::applied) before[rank] = weights_and_states_of(engine);
    } catch (const NumericsError& error) {
      words[rank] = error.what();
    }
    EXPECT_TRUE(weights_and_states_of(engine) == before[rank]);
  });
  EXPECT_EQ(words[0], words[1]);
  return words[0];
}

TEST_P(LossScale, AnOverflowAtTheMinimum_IsANamedError) {
  EXPECT_THAT(last_words(config_of(
                  GetParam(), DType::f16,
                  {.dynamic = true, .initial_scale_power = 1, .hysteresis = 1, .min_scale = 0.5})),
              testing::AllOf(HasSubstr("step 4"), HasSubstr("loss scale already at minimum (0.5)"),
                             NamesThePlace(GetParam()), HasSubstr("cannot decrease")));
}

TEST_P(LossScale, SkipsInARow_EndTheRun) {
  EngineConfig config = config_of(GetParam(), DType::bf16);
  config.precision.max_consecutive_skips = 3;
  EXPECT_THAT(last_words(config), testing::AllOf(HasSubstr("not finite for 3 steps in a row"),
                                                 NamesThePlace(GetParam())));
}

// A gradient of 40000 on each of two ranks: their sum is no f16.
struct Steep : test::LossOnly {
  Tensor loss(const nn::Batch&) override {
    return autograd::sum(autograd::linear(Tensor::full({2, 4}, 20'000.0, DType::f16), weight));
  }
  nn::Parameter weight{*this, "weight", {4, 4}, autograd::Initializer::zeros()};
};

StepOutcome steep_step(const EngineConfig& config) {
  StepOutcome outcome{};
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    Steep model;
    Engine engine(model, config, world);
    engine.backward(engine.forward(test::one_target()));
    const auto gradient = engine.gradient("weight").to_vector<float>();
    const StepResult result = engine.step();
    if (result.outcome == StepOutcome::applied) {
      EXPECT_EQ(gradient, std::vector<float>(16, 40'000.0f));
      EXPECT_EQ(result.gradient_norm, 160'000.0);
    }
    if (world.is_main()) outcome = result.outcome;
  });
  return outcome;
}

TEST_P(LossScale, DivisionBeforeANativeSum_KeepsItInRange) {
  EngineConfig config = config_of(GetParam(), DType::f16);
  config.batch.micro_batch = 1;
  config.batch.sequence = 1;  // the loss is not divided: Note [Loss scale]
  EXPECT_EQ(steep_step(config), StepOutcome::skipped_overflow);
  config.gradient.reduce_algorithm = ReduceAlgorithm::native;
  EXPECT_EQ(steep_step(config), StepOutcome::skipped_overflow);
  config.gradient.prescale = true;
  EXPECT_EQ(steep_step(config), StepOutcome::applied);
  config.gradient.prescale = false;
  config.gradient.predivide_factor = 4.0;
  EXPECT_EQ(steep_step(config), StepOutcome::applied);
}

TEST_P(LossScale, DivisionBeforeAnOrderedSum_IsRefusedByName) {
  EngineConfig prescale = config_of(GetParam(), DType::f16);
  prescale.gradient.prescale = true;
  EngineConfig predivide = config_of(GetParam(), DType::f16);
  predivide.gradient.predivide_factor = 4.0;
  for (const EngineConfig& config : {prescale, predivide}) {
    try {
      validate(config);
      FAIL() << "nothing was thrown";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("prescale_gradients and gradient_predivide_factor are "
                                          "for \"reduce_algorithm\": \"native\" only"));
    }
  }
}

}  // namespace overflow_test
}  // namespace zinc::zero
