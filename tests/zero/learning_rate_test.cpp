// The learning rate between steps: read, set by hand, given back to the schedule.
#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace learning_rate_test {

EngineConfig decaying_config() {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.optimizer.hyper.lr = 1e-2;
  config.schedule.kind = optim::ScheduleKind::linear;
  config.schedule.total_steps = 8;
  return config;
}

TEST(LearningRate, IsReadBetweenStepsAndReportedByThem) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, decaying_config(), world);
    for (int step = 0; step < 4; ++step) {
      const double next = engine.learning_rate();
      EXPECT_DOUBLE_EQ(next, 1e-2 * (1.0 - step / 8.0));
      engine.backward(engine.forward(test::make_batch(step)));
      EXPECT_EQ(engine.step().learning_rate, next);
    }
  });
}

TEST(LearningRate, SetByHand_HoldsUntilCleared) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, decaying_config(), world);
    const auto train = [&](int index) {
      engine.backward(engine.forward(test::make_batch(2 * index + world.rank())));
      return engine.step().learning_rate;
    };
    const auto weights = [&] {
      return engine.parameter("transformer.wte.weight").to_vector<float>();
    };
    const auto before = weights();
    engine.set_learning_rate(0.0);
    EXPECT_EQ(train(0), 0.0);
    EXPECT_EQ(train(1), 0.0);
    EXPECT_EQ(weights(), before);  // no decay either: it is multiplied by the rate
    engine.set_learning_rate(0.5);
    EXPECT_EQ(engine.learning_rate(), 0.5);
    EXPECT_EQ(train(2), 0.5);
    EXPECT_NE(weights(), before);
    engine.set_learning_rate({});
    EXPECT_DOUBLE_EQ(train(3), 1e-2 * (1.0 - 3.0 / 8.0));  // the schedule went on meanwhile
    EXPECT_THROW(engine.set_learning_rate(-1.0), InvalidArgument);
  });
}

}  // namespace learning_rate_test
}  // namespace zinc::zero
