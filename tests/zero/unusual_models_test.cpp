// Unusual models, which have the bits of stage 0 on every stage: parameters without elements,
// frozen ones, tied ones and both, and several forward passes before a backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace unusual_models_test {

using test::make_batch;
using test::tiny_config;
using test::weights_of;

EngineConfig config_of(int stage, int64_t accumulation, DType dtype) {
  EngineConfig config;
  config.batch = {.micro_batch = 2, .accumulation = accumulation};
  config.precision.dtype = dtype;
  config.gradient.reduce_schedule = ReduceSchedule::micro_step;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1};
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 100;
  config.zero.max_reuse_distance = 0;
  return config;
}

template <class Body>
void on_ranks(int world_size, const Body& body) {
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::seconds(30));  // a hang is an error
    body(world);
  });
}

// `train` on every stage leaves the weights that it leaves on stage 0.
void expect_one_result(
    int world_size, const std::function<std::vector<float>(int stage, comm::World& world)>& train) {
  std::vector<float> reference;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    std::vector<float> weights;
    on_ranks(world_size, [&](comm::World& world) {
      const std::vector<float> found = train(stage, world);
      if (world.is_main()) weights = found;
    });
    EXPECT_FALSE(weights.empty());
    if (stage == 0) reference = weights;
    EXPECT_TRUE(weights == reference);
  }
}

class UnusualModel : public testing::TestWithParam<std::tuple<int, DType>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, UnusualModel,
                         testing::Combine(testing::Values(1, 3),
                                          testing::Values(DType::f32, DType::bf16)));

struct Nothing : nn::Module {
  Nothing(nn::Module& parent, const std::string& name) : Module(parent, name) { mark_shard_unit(); }
  nn::Parameter weight{*this, "weight", {3, 0}, autograd::Initializer::normal(1.0)};
};

// Parameters without elements: beside others, and alone in a group.
struct WithEmptyParameters : nn::Gpt2 {
  WithEmptyParameters() : Gpt2(tiny_config()) {}
  nn::Parameter beside{*this, "beside", {0, 24}, autograd::Initializer::zeros()};
  nn::Parameter full{*this, "full", {24}, autograd::Initializer::ones()};
  Nothing alone{*this, "alone"};
};

// Rules that see whole parameters among them: an empty one is at the place of the next.
TEST_P(UnusualModel, ParametersWithoutElements_AreTrainedWithTheRestByWholeRules) {
  const auto [world_size, type] = GetParam();
  const DType dtype = type;
  for (const auto rule : {optim::OptimizerKind::lamb, optim::OptimizerKind::adafactor}) {
    expect_one_result(world_size, [dtype, rule](int stage, comm::World& world) {
      WithEmptyParameters model;
      EngineConfig config = config_of(stage, 1, dtype);
      config.optimizer.kind = rule;
      config.optimizer.hyper.lr = 0.1;
      Engine engine(model, config, world);
      engine.backward(engine.forward(make_batch(world.rank())));
      EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
      int64_t own = 0;
      engine.read_own(Engine::Own::weights_and_states,
                      [&](const OwnPiece& piece) { own += piece.values.numel(); });
      EXPECT_GT(own, 0);
      return weights_of(engine);
    });
  }
}

TEST_P(UnusualModel, ParametersWithoutElements_AreTrainedWithTheRest) {
  const auto [world_size, type] = GetParam();
  const DType dtype = type;
  expect_one_result(world_size, [dtype](int stage, comm::World& world) {
    WithEmptyParameters model;
    Engine engine(model, config_of(stage, 1, dtype), world);
    for (int64_t step = 0; step < 3; ++step) {
      engine.backward(engine.forward(make_batch(step * world.size() + world.rank())));
      EXPECT_EQ(engine.gradient("beside").numel(), 0);
      EXPECT_EQ(engine.gradient("alone.weight").numel(), 0);
      EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
    }
    EXPECT_EQ(engine.optimizer_state("alone.weight", "exp_avg").shape(), (Shape{3, 0}));
    engine.edit({"beside", "alone.weight"}, [](Engine::EditedParameters&) {});
    int64_t own = 0;
    engine.read_own(Engine::Own::weights,
                    [&](const OwnPiece& piece) { own += piece.values.numel(); });
    EXPECT_GT(own, 0);
    return weights_of(engine);
  });
}

// GPT-2's head is its token table; here it is frozen too, and so is a block.
TEST_P(UnusualModel, FrozenAndTiedParameters_KeepTheirBitsAndHaveNoStates) {
  const auto [world_size, type] = GetParam();
  const DType dtype = type;
  expect_one_result(world_size, [dtype](int stage, comm::World& world) {
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.wte.weight");
    model.freeze("transformer.h.2.*");
    Engine engine(model, config_of(stage, 2, dtype), world);
    const std::vector<const char*> frozen{
        "transformer.wte.weight", "transformer.h.2.mlp.c_fc.weight", "transformer.h.2.ln_1.bias"};
    std::vector<std::vector<float>> before;
    for (const char* name : frozen) before.push_back(engine.parameter(name).to_vector<float>());
    const auto trained = engine.parameter("transformer.h.1.mlp.c_fc.weight").to_vector<float>();
    for (int64_t micro = 0; micro < 4; ++micro) {
      engine.backward(engine.forward(make_batch(micro * world.size() + world.rank())));
      engine.step();
    }
    for (size_t i = 0; i < frozen.size(); ++i) {
      EXPECT_EQ(engine.parameter(frozen[i]).to_vector<float>(), before[i]) << frozen[i];
      EXPECT_THROW(engine.optimizer_state(frozen[i], "exp_avg"), InvalidArgument);
    }
    EXPECT_NE(engine.parameter("transformer.h.1.mlp.c_fc.weight").to_vector<float>(), trained);
    return weights_of(engine);
  });
}

// Both losses first, then both backward passes: the bits of one after the other, dropout included.
TEST_P(UnusualModel, SeveralForwardsBeforeABackward_GiveTheSameBits) {
  const auto [world_size, dtype] = GetParam();
  std::vector<float> reference;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int64_t recompute : {0, 1}) {
      if (recompute > 0 && stage != 3) continue;
      for (const bool together : {false, true}) {
        SCOPED_TRACE(
            str("stage ", stage, recompute > 0 ? " recompute" : "", together ? " together" : ""));
        std::vector<float> weights;
        on_ranks(world_size, [&](comm::World& world) {
          nn::Gpt2 model(tiny_config(0.1));
          EngineConfig config = config_of(stage, 2, dtype);
          config.recompute.every_blocks = recompute;
          Engine engine(model, config, world);
          const auto batch = [&](int64_t micro) {
            return make_batch(micro * world.size() + world.rank());
          };
          for (int64_t step = 0; step < 2; ++step) {
            Loss first = engine.forward(batch(2 * step));
            Loss second = together ? engine.forward(batch(2 * step + 1)) : Loss{};
            engine.backward(first);
            EXPECT_EQ(engine.step().outcome, StepOutcome::accumulated);
            if (!together) second = engine.forward(batch(2 * step + 1));
            engine.backward(second);
            EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
            // An evaluation between steps is another forward.
            engine.evaluate(batch(2 * step));
          }
          const auto found = weights_of(engine);
          if (world.is_main()) weights = found;
        });
        if (reference.empty()) reference = weights;
        EXPECT_TRUE(weights == reference);
      }
    }
  }
}

}  // namespace unusual_models_test
}  // namespace zinc::zero
