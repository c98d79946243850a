// A rule that trains with other weights than those that the model is used with: Note [Weights for
// use] in zero/engine.h. All uses get the latter, wherever weights and states are, and no bit of
// training depends on uses.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/equivalence/weights_for_use_run.h"

namespace zinc::zero {
namespace weights_for_use_test {

using namespace weights_for_use;

class WeightsForUse : public testing::TestWithParam<WhereKept> {};

TEST_P(WeightsForUse, AreTheAverageAndChangeNoBitOfTraining) {
  for (const DType dtype : {DType::f32, DType::bf16}) expect_average(GetParam(), dtype);
}

// Saved weights that come back, a parameter that is set: they are used as they are.
TEST(WeightsForUseThatAreSet, AreUsedAsTheyAre) {
  for (const int stage : {0, 2, 3}) {
    comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = config_of(DType::f32);
      config.zero.stage = stage;
      const std::unique_ptr<nn::Model> model = test::make_tiny_model(Family::gpt2);
      Engine engine(*model, config, world);
      const auto train = [&] {
        for (int64_t i = 0; i < config.batch.accumulation; ++i) {
          engine.backward(engine.forward(make_batch(Family::gpt2, i)));
          engine.step();
        }
      };
      train();
      const double best_loss = loss_of(engine);
      const Values best = read_all(engine, world);
      train();
      EXPECT_NE(loss_of(engine), best_loss);
      for (const auto& [name, values] : best) {
        const Shape shape = model->parameter(name).whole_shape();
        engine.set_parameter(name, Tensor::from<float>(values, shape));
      }
      EXPECT_EQ(loss_of(engine), best_loss) << stage;
      EXPECT_TRUE(read_all(engine, world) == best) << stage;
      const std::string name = best.begin()->first;
      EXPECT_TRUE(engine.optimizer_state(name, "z").to_vector<float>() == best.at(name)) << stage;
    });
  }
}

// An engine that ends behind training passes, and one that gives its weights away.
TEST(WeightsForUseAtTheEnd, ModelsHaveTheAverage) {
  for (const int stage : {0, 1, 3}) {
    comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = config_of(DType::f32);
      config.zero.stage = stage;
      for (const bool releases : {true, false}) {
        const std::unique_ptr<nn::Model> model = test::make_tiny_model(Family::gpt2);
        Values wanted;
        {
          Engine engine(*model, config, world);
          for (int64_t i = 0; i < 2 * config.batch.accumulation; ++i) {
            engine.backward(engine.forward(make_batch(Family::gpt2, i)));
            engine.step();
          }
          for (const auto& [name, parameter] : model->named_parameters()) {
            wanted[name] = average_of(engine.parameter(name).to_vector<float>(),
                                      engine.optimizer_state(name, "z").to_vector<float>());
          }
          if (releases) engine.release_to_model();
        }
        for (const auto& [name, parameter] : model->named_parameters()) {
          ASSERT_EQ(parameter->has_data(), releases || stage < 3) << name;
          if (!parameter->has_data()) continue;
          EXPECT_TRUE(parameter->data().to_vector<float>() == wanted.at(name))
              << stage << ' ' << releases << ' ' << name;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightsForUse, testing::ValuesIn(places()),
                         [](const auto& info) { return info.param.name; });

}  // namespace weights_for_use_test
}  // namespace zinc::zero
