// A client's own update rule, from a function of one element: docs/own-optimizer.md.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/context.h"
#include "core/error.h"
#include "optim/update_elements.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace own_rule_test {

using test::make_batch;
using test::tiny_config;

constexpr int kWorld = 2;

// The operations of lion in kernels/update_table.h.
class OwnLion final : public optim::Optimizer {
 public:
  std::string_view name() const override { return "OwnLion"; }
  int num_states() const override { return 1; }
  std::string_view state_name(int) const override { return "exp_avg"; }
  void update(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    optim::update_elements(
        args, num_states(), stream, [hyper]<class A>(A& weight, A gradient, auto& states) {
          const A u = std::fma(A(hyper.beta1), states[0], A(1.0 - hyper.beta1) * gradient);
          if (hyper.weight_decay != 0.0) {
            weight = std::fma(A(-hyper.lr * hyper.weight_decay), weight, weight);
          }
          weight = std::fma(A(-hyper.lr), A(u > 0 ? 1 : u < 0 ? -1 : 0), weight);
          states[0] = std::fma(A(hyper.beta2), states[0], A(1.0 - hyper.beta2) * gradient);
        });
  }
};

struct Found {
  std::vector<double> losses;
  std::vector<float> values;  // weights, and their states
  bool operator==(const Found&) const = default;
};

Found train(EngineConfig config, bool own) {
  Found all;
  config.zero.allow_untested_optimizer = true;
  config.zero.force_cpu_optimizer = false;
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 2}, [&](comm::World& world) {
    Found mine;
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    if (own) options.optimizer = std::make_unique<OwnLion>();
    Engine engine(model, config, world, std::move(options));
    for (int64_t i = 0; i < 4 * config.batch.accumulation; ++i) {
      engine.backward(engine.forward(make_batch(i * world.size() + world.rank())));
      mine.losses.push_back(engine.step().loss);
    }
    mine.values = test::weights_of(engine);
    for (const auto& [name, parameter] : model.named_parameters()) {
      const auto states = engine.optimizer_state(name, "exp_avg").to_vector<float>();
      mine.values.insert(mine.values.end(), states.begin(), states.end());
    }
    if (world.is_main()) all = std::move(mine);
  });
  return all;
}

EngineConfig config_of(DType dtype) {
  EngineConfig config = test::training_config(2, dtype, ReduceSchedule::micro_step);
  config.optimizer.kind = optim::OptimizerKind::lion;
  config.optimizer.hyper = {.lr = 1e-3, .weight_decay = 0.1, .beta2 = 0.99};
  return config;
}

TEST(AnOwnRule, OfElements_GivesTheBitsOfZincsRuleOnEveryStageAndTier) {
  const offload::SwapFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EngineConfig config = config_of(dtype);
    config.zero.stage = 0;
    const Found wanted = train(config, false);
    EXPECT_TRUE(train(config, true) == wanted) << str(dtype, " stage 0");
    config.zero.stage = 3;
    EXPECT_TRUE(train(config, true) == wanted) << str(dtype, " stage 3");
    config.zero.stage = 2;
    config.zero.sub_group_size = 5000;
    config.zero.offload_optimizer = {.device = OffloadDevice::cpu, .ratio = 0.4};
    EXPECT_TRUE(train(config, true) == wanted) << str(dtype, " split");
    config.zero.offload_optimizer = {.device = OffloadDevice::nvme, .nvme_path = folder.path()};
    EXPECT_TRUE(train(config, true) == wanted) << str(dtype, " in swap space");
  }
}

TEST(AnOwnRule, WithoutTheKeys_IsAConfigErrorWithTheCure) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of(DType::f32);
    config.zero.stage = 2;
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    options.optimizer = std::make_unique<OwnLion>();
    try {
      Engine engine(model, config, world, std::move(options));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("zero_allow_untested_optimizer"), std::string::npos);
    }
  });
}

// The CPU computes nothing on another processor's memory.
TEST(AnOwnRule, OfElements_RefusesWhatTheCpuCannotRead) {
  std::vector<float> values(4);
  const View on_gpu(values.data(), DType::f32, Shape{4},
                    Device{.kind = DeviceKind::cuda, .index = 0});
  const View here(values.data(), DType::f32, Shape{4}, kCpu);
  Context context({.num_threads = 1});
  const auto message = [&](const optim::Update& update, int states) {
    try {
      optim::update_elements(update, states, context.compute(), [](auto&, auto, auto&) {});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(message({.weights = on_gpu, .gradient = on_gpu}, 0).find("needs a kernel"),
            std::string::npos);
  EXPECT_NE(message({.weights = here, .gradient = here}, 5).find("4 at most"), std::string::npos);
}

}  // namespace own_rule_test
}  // namespace zinc::zero
