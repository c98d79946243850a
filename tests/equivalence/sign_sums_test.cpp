// Gradients that travel as signs: the same bits on all stages, tiers and buckets.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/equivalence/training_run.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/states_of.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace sign_sums_test {

struct SignCase {
  int world = 2;
  DType dtype = DType::f32;
  int64_t accumulation = 1;
  bool parameter_scales = false;
  bool frozen = false;  // a part of the model is
};
void PrintTo(const SignCase& c, std::ostream* out) {
  *out << str("world ", c.world, " ", c.dtype, " accumulation ", c.accumulation)
       << (c.parameter_scales ? " parameter scales" : "") << (c.frozen ? " lora" : "");
}

// Signs travel from the third update on.
EngineConfig config_of(const SignCase& c) {
  EngineConfig config = test::training_config(c.accumulation, c.dtype, ReduceSchedule::boundary);
  config.optimizer = {.kind = optim::OptimizerKind::one_bit_adam,
                      .hyper = {.lr = c.frozen ? 1e-7 : 1e-3, .weight_decay = 0.1},
                      .one_bit = {.freeze_step = 2, .parameter_scales = c.parameter_scales}};
  config.gradient.clipping = 0.05;
  return config;
}

// Losses, norms, then weights and all states, on rank 0.
std::vector<double> train(const SignCase& c, const EngineConfig& config) {
  std::vector<double> all;
  comm::run_local_ranks(c.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    std::vector<double> mine;
    const std::unique_ptr<nn::Model> model = training::make_model({.lora = c.frozen});
    Engine engine(*model, config, world);
    int applied = 0;
    for (int64_t step = 0; applied < 6; ++step) {
      StepResult result;
      for (int64_t i = 0; i < c.accumulation; ++i) {
        const int64_t index = (step * c.accumulation + i) * world.size() + world.rank();
        engine.backward(engine.forward(test::make_batch(test::Family::gpt2, index)));
        result = engine.step();
      }
      mine.push_back(result.loss);
      if (result.outcome != StepOutcome::applied) continue;
      ++applied;
      mine.push_back(result.gradient_norm);
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      const auto take = [&](const Tensor& tensor) {
        for (const float value : tensor.to_vector<float>()) mine.push_back(double{value});
      };
      take(engine.parameter(name));
      if (!parameter->requires_grad()) continue;
      for (const auto& [kind, state] : test::states_of(engine, name)) take(state);
    }
    if (world.is_main()) all = std::move(mine);
  });
  return all;
}

class SignSums : public testing::TestWithParam<SignCase> {};

TEST_P(SignSums, GiveTheSameBitsOnAllStagesAndTiers) {
  const offload::SwapFolder folder;
  const SignCase& c = GetParam();
  EngineConfig config = config_of(c);
  const std::vector<double> wanted = train(c, config);
  ASSERT_GT(wanted.size(), 1000u);
  for (const int stage : {1, 2}) {
    config.zero.stage = stage;
    EXPECT_TRUE(train(c, config) == wanted) << "stage " << stage;
  }
  config.zero.reduce_bucket_size = 3000;
  config.zero.sub_group_size = 5000;  // cuts parameters
  EXPECT_TRUE(train(c, config) == wanted) << "small buckets";
  config.zero.overlap_comm = true;
  EXPECT_TRUE(train(c, config) == wanted) << "with overlap";
  OffloadConfig& states = config.zero.offload_optimizer;
  states = {.device = OffloadDevice::cpu, .ratio = 1.0};
  EXPECT_TRUE(train(c, config) == wanted) << "in host memory";
  config.overlap_update = true;
  EXPECT_TRUE(train(c, config) == wanted) << "beside the next pass";
  states.ratio = 0.4;
  EXPECT_TRUE(train(c, config) == wanted) << "split";
  config.offload_step = OffloadStep::device;
  EXPECT_TRUE(train(c, config) == wanted) << "updated on the device";
  config.offload_step = OffloadStep::host;
  states = {.device = OffloadDevice::nvme, .nvme_path = folder.path(), .pipeline_read = true};
  EXPECT_TRUE(train(c, config) == wanted) << "in swap space";
  config.gradient_offload = GradientOffload::nvme;
  EXPECT_TRUE(train(c, config) == wanted) << "gradients in swap space";
}

INSTANTIATE_TEST_SUITE_P(
    All, SignSums,
    testing::Values(SignCase{}, SignCase{.world = 1}, SignCase{.dtype = DType::bf16},
                    SignCase{.world = 3, .dtype = DType::bf16, .accumulation = 2},
                    SignCase{.dtype = DType::f16, .parameter_scales = true},
                    SignCase{.world = 4, .accumulation = 2, .parameter_scales = true},
                    SignCase{.dtype = DType::bf16, .frozen = true}));

}  // namespace sign_sums_test
}  // namespace zinc::zero
