// Parameter groups of a client: what each parameter is updated with, on every stage and wherever
// the states are; and what no optimizer may hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace parameter_groups_test {

using optim::ParameterGroup;
using test::make_batch;
using test::tiny_config;
using test::weights_of;
using testing::HasSubstr;

constexpr int kWorld = 2;
constexpr double kRate = 0.25;

// The learning rate of a parameter of that name. The groups cut through blocks and segments.
double rate_of(const std::string& name) {
  if (name.find("wte") != std::string::npos) return 0.0;
  if (name.find("attn") != std::string::npos) return 2.0 * kRate;
  return kRate;
}

std::vector<ParameterGroup> groups_of(nn::Model& model, double weight_decay) {
  std::vector<ParameterGroup> groups;
  for (const double rate : {2.0 * kRate, 0.0, kRate}) {
    ParameterGroup group{.name = str("rate ", rate), .parameters = {}, .hyper = {.lr = rate}};
    group.hyper.weight_decay = rate == kRate ? weight_decay : 0.0;
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (parameter->requires_grad() && rate_of(name) == rate)
        group.parameters.push_back(parameter);
    }
    groups.push_back(group);
  }
  return groups;
}

EngineConfig config_of(int stage, optim::OptimizerKind kind) {
  EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::boundary);
  config.gradient.clipping = 0.0;
  config.optimizer.kind = kind;
  config.optimizer.hyper = {.lr = kRate};
  config.schedule.kind = optim::ScheduleKind::linear;
  config.schedule.total_steps = 4;
  config.zero.stage = stage;
  return config;
}

class ClientsGroups : public testing::TestWithParam<std::tuple<int, OffloadDevice>> {
 protected:
  EngineConfig placed(optim::OptimizerKind kind) const {
    const auto [stage, device] = GetParam();
    EngineConfig config = config_of(stage, kind);
    config.zero.offload_optimizer = {.device = device, .nvme_path = swap_.path()};
    config.zero.sub_group_size = device == OffloadDevice::none ? 0 : 3072;  // cuts parameters
    return config;
  }

 private:
  offload::SwapFolder swap_;
};

INSTANTIATE_TEST_SUITE_P(
    Placements, ClientsGroups,
    testing::Values(std::tuple(0, OffloadDevice::none), std::tuple(1, OffloadDevice::none),
                    std::tuple(2, OffloadDevice::none), std::tuple(3, OffloadDevice::none),
                    std::tuple(2, OffloadDevice::cpu), std::tuple(3, OffloadDevice::cpu),
                    std::tuple(3, OffloadDevice::nvme)));

TEST_P(ClientsGroups, EachParameterMovesAtItsOwnRate) {
  const EngineConfig config = placed(optim::OptimizerKind::sgd);
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world, {.parameter_groups = groups_of(model, 0.0)});
    for (int64_t step = 0; step < 2; ++step) {
      const double share = 1.0 - static_cast<double>(step) / 4.0;  // of the schedule
      engine.backward(engine.forward(make_batch(kWorld * step + world.rank())));
      std::vector<std::pair<std::vector<float>, std::vector<float>>> before;
      for (const auto& [name, parameter] : model.named_parameters()) {
        before.emplace_back(engine.parameter(name).to_vector<float>(),
                            engine.gradient(name).to_vector<float>());
      }
      engine.step();
      size_t i = 0;
      for (const auto& [name, parameter] : model.named_parameters()) {
        const auto after = engine.parameter(name).to_vector<float>();
        const auto& [weights, gradient] = before[i++];
        double difference = 0.0;
        double size = 0.0;
        for (size_t k = 0; k < after.size(); ++k) {
          const double moved = share * rate_of(name) * static_cast<double>(gradient[k]);
          difference = std::max(difference, std::abs(weights[k] - moved - after[k]));
          size = std::max({size, std::abs(moved), static_cast<double>(std::abs(after[k]))});
        }
        // A division, a product and a difference, each rounded to f32.
        EXPECT_LE(difference, 4.0 * 0x1p-24 * size) << name;
        EXPECT_TRUE(rate_of(name) != 0.0 || after == weights) << name;
      }
    }
  });
}

TEST_P(ClientsGroups, GiveTheBitsOfStage0) {
  const auto train = [](const EngineConfig& config) {
    std::vector<float> weights;
    comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      model.freeze("transformer.h.1.mlp.*");
      Engine engine(model, config, world, {.parameter_groups = groups_of(model, 0.1)});
      for (int64_t step = 0; step < 3; ++step) {
        engine.backward(engine.forward(make_batch(kWorld * step + world.rank())));
        engine.step();
      }
      const auto found = weights_of(engine);
      if (world.is_main()) weights = found;
    });
    return weights;
  };
  EXPECT_TRUE(train(placed(optim::OptimizerKind::adamw)) ==
              train(config_of(0, optim::OptimizerKind::adamw)));
}

std::string refusal(
    const std::function<std::vector<ParameterGroup>(nn::Gpt2& model, nn::Gpt2& other)>& groups) {
  std::string words = "(no error)";
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    nn::Gpt2 other(tiny_config());
    try {
      Engine engine(model, config_of(1, optim::OptimizerKind::adamw), world,
                    {.parameter_groups = groups(model, other)});
    } catch (const InvalidArgument& error) {
      words = error.what();
    }
  });
  return words;
}

TEST(ParameterGroups, OfAnotherModel_AreRefusedByName) {
  EXPECT_THAT(refusal([](nn::Gpt2& model, nn::Gpt2& other) {
                auto groups = groups_of(model, 0.0);
                groups.push_back({.name = "foreign",
                                  .parameters = {&other.parameter("transformer.wpe.weight")}});
                return groups;
              }),
              HasSubstr("transformer.wpe.weight of \"foreign\" is not a parameter of the engine's "
                        "model"));
}

TEST(ParameterGroups, ThatLeaveAParameterOut_AreRefusedByName) {
  EXPECT_THAT(refusal([](nn::Gpt2& model, nn::Gpt2&) {
                auto groups = groups_of(model, 0.0);
                groups.erase(groups.begin() + 1);
                return groups;
              }),
              HasSubstr("transformer.wte.weight is in none of them"));
}

TEST(ParameterGroups, ThatHoldAParameterTwiceOrAFrozenOne_AreRefusedByName) {
  EXPECT_THAT(refusal([](nn::Gpt2& model, nn::Gpt2&) {
                auto groups = groups_of(model, 0.0);
                groups[0].parameters.push_back(&model.parameter("transformer.wte.weight"));
                return groups;
              }),
              HasSubstr("transformer.wte.weight comes twice"));
  EXPECT_THAT(refusal([](nn::Gpt2& model, nn::Gpt2&) {
                auto groups = groups_of(model, 0.0);
                model.freeze("transformer.wpe.weight");
                return groups;
              }),
              HasSubstr("transformer.wpe.weight is frozen"));
}

TEST(ParameterGroups, ThatDifferBetweenRanks_AreNamed) {
  try {
    comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config_of(1, optim::OptimizerKind::adamw), world,
                    {.parameter_groups = groups_of(model, 0.1 * world.rank())});
    });
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the split into parameter groups of rank 1 differs"));
  }
}

}  // namespace parameter_groups_test
}  // namespace zinc::zero
