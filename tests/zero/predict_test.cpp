// Engine::predict(): any function of a model whose parameters an engine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "autograd/ops/reduce.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace predict_test {

using test::make_batch;
using ::testing::HasSubstr;

EngineConfig config_of(int stage) {
  EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::boundary);
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  return config;
}

template <class Body>
void on_ranks(int world, const Body& body) {
  comm::run_local_ranks(world, {.seed = 5, .num_threads = 1}, body);
}

// The logits of a prediction after two steps on rank 1, and the peak of device memory that it adds.
struct Predicted {
  std::vector<float> logits, again;
  int64_t gathered_bytes = 0;
  bool trains_on = false;
};

Predicted predict_after_two_steps(int stage) {
  Predicted found;
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config(0.1));  // with dropout, which has to be off
    Engine engine(model, config_of(stage), world);
    const auto step = [&](int64_t number) {
      engine.backward(engine.forward(make_batch(2 * number + world.rank())));
      return engine.step();
    };
    step(0);
    step(1);
    const nn::Batch batch = make_batch(7);
    const auto live = [&] {
      return world.context().allocator().report().at(Tier::device, Label::parameters).live;
    };
    const int64_t before = live();
    int64_t inside = 0;
    const nn::NamedTensors outputs = engine.predict([&] {
      const nn::NamedTensors all = model.outputs(batch);
      inside = live();
      return all;
    });
    // A second pass in the same prediction begins anew, in an order that no program has.
    const std::vector<float> again = engine.predict([&] {
      model.next_logits(batch["input_ids"]);
      return model.outputs(batch)["logits"].to_vector<float>();
    });
    engine.predict([] {});
    EXPECT_EQ(live(), before);
    const bool trains_on = step(2).outcome == StepOutcome::applied;
    if (world.rank() != 1) return;
    found = {outputs["logits"].to_vector<float>(), again, inside - before, trains_on};
  });
  return found;
}

TEST(Predict, GivesTheSameOnEveryStage_AndTrainingGoesOn) {
  const Predicted whole = predict_after_two_steps(0);
  EXPECT_EQ(whole.logits.size(), 2u * 9 * 37);
  EXPECT_EQ(whole.logits, whole.again);
  EXPECT_TRUE(whole.trains_on);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    const Predicted sharded = predict_after_two_steps(stage);
    EXPECT_EQ(sharded.logits, whole.logits);
    EXPECT_EQ(sharded.again, whole.logits);
    EXPECT_TRUE(sharded.trains_on);
  }
}

// With sharded parameters a group is given back when another one is used.
TEST(Predict, KeepsOneGroupGathered) {
  nn::Gpt2 model(test::tiny_config());
  int64_t largest = 0, all = 0;
  for (const ShardGroup& group : make_shard_groups(model, 2, 0)) {
    largest = std::max(largest, group.numel() * 4);
    all += group.numel() * 4;
  }
  const int64_t gathered = predict_after_two_steps(3).gathered_bytes;
  EXPECT_GT(gathered, 0);
  EXPECT_LE(gathered, largest);
  EXPECT_LT(gathered, all / 2);
}

TEST(Predict, RanksThatUseOtherGroups_AreToldSo) {
  std::array<std::string, 2> messages;
  on_ranks(2, [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::seconds(20));
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(3), world);
    try {
      engine.predict([&] {
        if (world.rank() == 1) model.next_logits(make_batch(0)["input_ids"]);
      });
    } catch (const InvalidArgument& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
    }
    // Whoever catches it goes on as if nothing had been asked.
    const auto live = [&] {
      return world.context().allocator().report().at(Tier::device, Label::parameters).live;
    };
    const int64_t before = live();
    const auto fails = [&] {
      engine.predict([&] {
        model.next_logits(make_batch(0)["input_ids"]);
        throw DataError("of the caller's own");
      });
    };
    EXPECT_THROW(fails(), DataError);
    EXPECT_EQ(live(), before);
    const Tensor logits =
        engine.predict([&] { return model.next_logits(make_batch(0)["input_ids"]); });
    EXPECT_EQ(logits.to_vector<float>(),
              engine.next_logits(make_batch(0)["input_ids"]).to_vector<float>());
    engine.backward(engine.forward(make_batch(world.rank())));
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("rank 0 ends its pass, rank 1 uses "));
  }
}

TEST(Predict, OutsideOfIt_TheModuleSaysWhereToCallIt) {
  on_ranks(1, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(0), world);
    try {
      model.outputs(make_batch(0));
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("inside engine.predict("));
    }
  });
}

TEST(Predict, APassOfTheEnginesInsideOfIt_IsRefused) {
  on_ranks(1, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(0), world);
    try {
      engine.predict([&] { engine.evaluate(make_batch(0)); });
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("not inside engine.predict()"));
    }
    EXPECT_GT(engine.evaluate(make_batch(0)).mean(), 0.0);
  });
}

struct Misfit : test::LossOnly {
  Tensor loss(const nn::Batch& batch) override {
    const Tensor x = first.forward(Tensor::zeros({2, 4}));
    return autograd::sum(batch.num_targets == limit ? second.forward(x) : x);
  }
  nn::Linear first{*this, "first", {.in = 4, .out = 3}};
  nn::Linear second{*this, "second", {.in = 5, .out = 3}};
  int64_t limit = -1;
};

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Errors, OfAModel_SayWhereItWas) {
  on_ranks(1, [&](comm::World& world) {
    EngineConfig config = config_of(0);
    config.batch.micro_batch = 1;
    Misfit recorded;
    recorded.limit = 4;  // of the recording
    EXPECT_THAT(refusal([&] { Engine engine(recorded, config, world); }),
                testing::AllOf(HasSubstr("for a weight of shape [3, 5] (second.weight)"),
                               HasSubstr("(while the engine recorded the model on a meta device, "
                                         "which has shapes and no memory, with a batch of "
                                         "input_ids [1, 4] i32, labels [1, 4] i32, "
                                         "after first.bias was used)")));
    Misfit model;
    Engine engine(model, config, world, {.dynamic_model = true});
    model.limit = 1;
    EXPECT_THAT(refusal([&] { engine.forward(test::one_target()); }),
                HasSubstr("(forward of micro-batch 1, after first.bias was used)"));
    EXPECT_THAT(refusal([&] { engine.evaluate(test::one_target()); }),
                HasSubstr("(evaluation, after first.bias was used)"));
    EXPECT_THAT(refusal([&] { engine.next_logits({}); }),
                HasSubstr("model loss_only: engine.next_logits needs zinc::nn::CausalLm"));
  });
}

}  // namespace predict_test
}  // namespace zinc::zero
