// A model after its engine: the values that were trained stay, or a use of them says that they are
// gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/mode.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace begin_and_end_values_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kEndWorld = 2;

using NamedValues = std::map<std::string, std::vector<float>>;

// The values in the model's own parameters.
NamedValues held_by(nn::Module& model) {
  NamedValues values;
  for (const auto& [name, tensor] : model.state_dict()) values[name] = tensor.to_vector<float>();
  return values;
}

// The values that the engine's optimizer updates, rounded to the model's dtype.
NamedValues trained_by(Engine& engine) {
  NamedValues values;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const Tensor rounded = Tensor::empty(parameter->shape(), parameter->dtype());
    Tensor(rounded).copy_from(engine.parameter(name));
    values[name] = rounded.to_vector<float>();
  }
  return values;
}

EngineConfig ending_config(int stage, DType dtype) {
  EngineConfig config = test::training_config(1, dtype, ReduceSchedule::boundary);
  config.zero.stage = stage;
  return config;
}

void train_steps(Engine& engine, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    engine.backward(engine.forward(test::make_batch(kEndWorld * step + engine.world().rank())));
    engine.step();
  }
}

// Runs `body` on two ranks, each with its own model.
template <class Body>
void with_model(const Body& body) {
  comm::run_local_ranks(kEndWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    body(world, model);
  });
}

template <class Work>
std::string end_error(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class ValuesAtEnd : public testing::TestWithParam<std::tuple<int, DType>> {};
INSTANTIATE_TEST_SUITE_P(Stages, ValuesAtEnd,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(DType::f32, DType::bf16)));

TEST_P(ValuesAtEnd, StayOnStages0To2_AndSayThatTheyAreGoneOnStage3) {
  const auto [stage, dtype] = GetParam();
  with_model([&, stage = stage, dtype = dtype](comm::World& world, nn::Gpt2& model) {
    NamedValues trained;
    {
      Engine engine(model, ending_config(stage, dtype), world);
      train_steps(engine, 0, 3);
      trained = trained_by(engine);
    }
    if (stage < 3) {
      EXPECT_TRUE(held_by(model) == trained);
      return;
    }
    EXPECT_THAT(end_error([&] { model.state_dict(); }),
                AllOf(HasSubstr("transformer.wte.weight"), HasSubstr("its values are gone"),
                      HasSubstr("release_to_model()")));
    EXPECT_THAT(end_error([&] { Engine again(model, ending_config(stage, dtype), world); }),
                HasSubstr("its values are gone"));
  });
}

TEST_P(ValuesAtEnd, ReleasedToTheModel_AreTheTrainedOnes) {
  const auto [stage, dtype] = GetParam();
  with_model([&, stage = stage, dtype = dtype](comm::World& world, nn::Gpt2& model) {
    const Tensor ids = test::make_batch(0)["input_ids"];
    std::optional<Engine> engine(std::in_place, model, ending_config(stage, dtype), world);
    train_steps(*engine, 0, 3);
    const NamedValues trained = trained_by(*engine);
    const auto logits = engine->next_logits(ids).to_vector<float>();
    engine->release_to_model();
    EXPECT_TRUE(held_by(model) == trained);
    EXPECT_TRUE(trained_by(*engine) == trained) << "the engine can still be read";
    EXPECT_THAT(end_error([&] { engine->forward(test::make_batch(0)); }),
                HasSubstr("make a new engine"));
    EXPECT_THAT(end_error([&] { engine->release_to_model(); }), HasSubstr("make a new engine"));
    engine.reset();
    EXPECT_TRUE(held_by(model) == trained);
    model.eval();
    const autograd::NoGrad no_grad;
    EXPECT_TRUE(model.next_logits(ids).to_vector<float>() == logits);
  });
}

// A second engine goes on where the first one ended.
TEST_P(ValuesAtEnd, AreTheFirstValuesOfTheNextEngine) {
  const auto [stage, dtype] = GetParam();
  with_model([&, stage = stage, dtype = dtype](comm::World& world, nn::Gpt2& model) {
    NamedValues first;
    {
      Engine engine(model, ending_config(stage, dtype), world);
      train_steps(engine, 0, 2);
      first = trained_by(engine);
      if (stage == 3) engine.release_to_model();
    }
    Engine engine(model, ending_config(3 - stage, dtype), world);
    EXPECT_TRUE(trained_by(engine) == first);
  });
}

TEST(ValuesAtEndOfAnUpdate, BesideTheNextForwardPass_AreComplete) {
  with_model([](comm::World& world, nn::Gpt2& model) {
    EngineConfig config = ending_config(2, DType::bf16);
    config.zero.offload_optimizer.device = OffloadDevice::cpu;
    config.overlap_update = true;
    nn::Gpt2 other(test::tiny_config());
    {
      Engine engine(model, config, world);
      train_steps(engine, 0, 2);  // the last update is under way
    }
    Engine engine(other, config, world);
    train_steps(engine, 0, 2);
    EXPECT_TRUE(held_by(model) == trained_by(engine));
  });
}

TEST(ValuesAtEndOfAnUpdate, PartWay_AreGone) {
  with_model([](comm::World& world, nn::Gpt2& model) {
    EngineConfig config = ending_config(1, DType::bf16);
    config.zero.offload_optimizer.device = OffloadDevice::cpu;
    config.overlap_update = true;
    config.precision.check_overflow = false;
    config.gradient.clipping = 0.0;  // nothing can stop the step: it begins during backward
    {
      Engine engine(model, config, world);
      const nn::Batch batch = test::make_batch(world.rank());
      engine.run_passes({&batch, 1});
    }
    EXPECT_THAT(end_error([&] { model.state_dict(); }),
                AllOf(HasSubstr("its values are gone"), HasSubstr("part way through an update")));
  });
}

TEST(ValuesAtEndOfAnEngine, ThatCouldNotBeMade_AreThoseBefore) {
  with_model([](comm::World& world, nn::Gpt2& model) {
    for (nn::Parameter* parameter : model.parameters()) parameter->data().fill(0.5);
    const NamedValues before = held_by(model);
    EngineConfig config = ending_config(0, DType::bf16);
    config.cuda_graph = true;
    EXPECT_THAT(end_error([&] { Engine engine(model, config, world); }), HasSubstr("cuda_graph"));
    EXPECT_TRUE(held_by(model) == before);
    // A total is missing: this is found when the model has been taken over.
    config.cuda_graph = false;
    config.schedule.kind = optim::ScheduleKind::linear;
    EXPECT_THAT(end_error([&] { Engine engine(model, config, world); }), HasSubstr("total"));
    EXPECT_TRUE(held_by(model) == before);
  });
}

// A client's source with another shape for one parameter.
struct OtherShape : nn::WeightSource {
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    if (parameter.name() == "transformer.wpe.weight") return std::nullopt;
    if (parameter.name() != "transformer.ln_f.weight") return parameter.shape();
    return Shape{parameter.numel(), 1};
  }
  void read(const autograd::Parameter&, int64_t, View) const override {
    ADD_FAILURE() << "nothing is to be read";
  }
};

TEST(WeightSourceShapes, AreComparedByTheEngineAndTheModule) {
  with_model([](comm::World& world, nn::Gpt2& model) {
    const OtherShape source;
    const auto says = AllOf(HasSubstr("mismatched 1: transformer.ln_f.weight: [24] vs [24, 1]"),
                            HasSubstr("missing 1: transformer.wpe.weight"));
    EXPECT_THAT(end_error([&] {
                  Engine engine(model, ending_config(3, DType::f32), world, {.weights = &source});
                }),
                says);
    EXPECT_THAT(end_error([&] { model.load(source); }), says);
  });
}

}  // namespace begin_and_end_values_test
}  // namespace zinc::zero
