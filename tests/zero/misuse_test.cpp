// Misuse that only an engine can see: named on every rank that it concerns, never a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reduce.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace misuse_test {

using test::make_batch;
using test::one_target;
using test::tiny_config;
using testing::HasSubstr;

EngineConfig config_of(int stage, int64_t micro_batch) {
  EngineConfig config;
  config.batch.micro_batch = micro_batch;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  return config;
}

template <class Use>
std::string refusal(const Use& use) {
  try {
    use();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(no error)";
}

class Misuse : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, Misuse, testing::Values(0, 1, 2, 3));

TEST_P(Misuse, AModuleRunOutsideTheEngine) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    world.communicator().set_deadline(std::chrono::seconds(20));
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam(), 2), world);
    const char* const cure = "belongs to an engine: call engine.forward()";
    EXPECT_THAT(refusal([&] { model.loss(make_batch(0)); }), HasSubstr(cure));
    const Loss loss = engine.forward(make_batch(0));
    EXPECT_THAT(refusal([&] { autograd::backward(loss.sum); }), HasSubstr(cure));
    EXPECT_THAT(refusal([&] { model.next_logits(make_batch(0)["input_ids"]); }), HasSubstr(cure));
    engine.backward(engine.forward(make_batch(0)));
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
  });
}

// Wherever they are, values change in engine.edit() and by steps alone.
TEST_P(Misuse, AParameterChangedOutsideOfTheEditScope) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam(), 2), world);
    const std::vector<float> before = test::weights_of(engine);
    nn::Parameter& parameter = model.parameter("transformer.wpe.weight");
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { parameter.data().fill(1.0); },
             [&] {
               model.load_state_dict({{"transformer.wpe.weight", Tensor::zeros({16, 24})}});
             }}) {
      EXPECT_THAT(refusal(use), testing::AllOf(HasSubstr("'transformer.wpe.weight'"),
                                               HasSubstr("engine.edit() changes them")));
    }
    const char* const late = "cannot change once it has values";
    EXPECT_THAT(refusal([&] { model.set_dtype(DType::bf16); }), HasSubstr(late));
    EXPECT_THAT(refusal([&] { model.freeze("transformer.wpe.weight"); }), HasSubstr(late));
    EXPECT_TRUE(test::weights_of(engine) == before);
    engine.edit({"transformer.wpe.weight"},
                [](Engine::EditedParameters& values) { values.begin()->second.fill(1.0); });
    EXPECT_FALSE(test::weights_of(engine) == before);
  });
}

struct Layer : nn::Module {
  Layer(nn::Module& parent, const std::string& name) : Module(parent, name) { mark_shard_unit(); }
  nn::Parameter weight{*this, "weight", {4, 4}, autograd::Initializer::normal(1.0)};
};

// Three groups of one size, of which a rank may skip one.
struct Skipping : test::LossOnly {
  Tensor loss(const nn::Batch&) override {
    Tensor x = Tensor::full({2, 4}, 1.0);
    const std::array layers{&first, &second, &third};
    for (int i = 0; i < 3; ++i) {
      if (i != skipped) x = autograd::linear(x, layers[static_cast<size_t>(i)]->weight);
    }
    return autograd::sum(x);
  }
  Layer first{*this, "first"};
  Layer second{*this, "second"};
  Layer third{*this, "third"};
  int skipped = -1;
};

TEST(SkippedGroup, WhereParametersAreSharded_IsNamedOnEveryRank) {
  for (int skipped = 0; skipped < 3; ++skipped) {
    SCOPED_TRACE(skipped);
    std::array<std::string, 3> messages;
    comm::run_local_ranks(3, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      world.communicator().set_deadline(std::chrono::seconds(20));
      Skipping model;
      Engine engine(model, config_of(3, 1), world, {.dynamic_model = true});
      engine.backward(engine.forward(one_target()));
      engine.step();
      if (world.rank() == 1) model.skipped = skipped;
      messages[static_cast<size_t>(world.rank())] =
          refusal([&] { engine.backward(engine.forward(one_target())); });
    });
    const std::array names{"first", "second", "third"};
    const auto index = static_cast<size_t>(skipped);
    const std::string other =
        skipped == 2 ? "rank 1 ends its pass" : std::string("rank 1 uses ") + names[index + 1];
    // Behind it stands where the rank was.
    const std::string same = messages[0].substr(0, messages[0].find("same order"));
    for (const std::string& message : messages) {
      EXPECT_THAT(message, testing::StartsWith(same));
      EXPECT_THAT(message, HasSubstr("a shard group is skipped on some ranks"));
      EXPECT_THAT(message, HasSubstr(std::string("rank 0 uses ") + names[index]));
      EXPECT_THAT(message, HasSubstr(other));
    }
  }
}

// The groups are reduced in one order on all ranks: what a rank skips counts as zero there.
TEST(SkippedGroup, WhereParametersAreWhole_CountsAsZero) {
  for (int stage = 0; stage <= 2; ++stage) {
    SCOPED_TRACE(stage);
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      world.communicator().set_deadline(std::chrono::seconds(20));
      Skipping model;
      Engine engine(model, config_of(stage, 1), world, {.dynamic_model = true});
      engine.set_learning_rate(0.0);  // the next gradient is that of the same weights
      engine.backward(engine.forward(one_target()));
      auto both = engine.gradient("third.weight").to_vector<float>();
      engine.step();
      model.skipped = world.rank() == 1 ? 2 : -1;
      engine.backward(engine.forward(one_target()));
      const auto one = engine.gradient("third.weight").to_vector<float>();
      EXPECT_NE(one, std::vector<float>(16, 0.0f));
      for (float& value : both) value /= 2;
      EXPECT_EQ(one, both);
      EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
      model.skipped = 2;
      engine.backward(engine.forward(one_target()));
      EXPECT_EQ(engine.gradient("third.weight").to_vector<float>(), std::vector<float>(16, 0.0f));
      engine.step();
    });
  }
}

// A rank that leaves a recorded schedule stops the job: it says so itself, its peers lose it.
TEST(SkippedGroup, OfARecordedSchedule_IsNamedByTheRankThatLeftIt) {
  try {
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      world.communicator().set_deadline(std::chrono::seconds(20));
      Skipping model;
      Engine engine(model, config_of(3, 1), world);
      if (world.rank() == 1) model.skipped = 1;
      engine.backward(engine.forward(one_target()));
    });
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("use of third.weight instead of use of second.weight"));
    EXPECT_THAT(error.what(), HasSubstr("needs EngineOptions::dynamic_model: "));
  }
}

}  // namespace misuse_test
}  // namespace zinc::zero
