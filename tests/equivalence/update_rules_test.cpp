// Every update rule gives the same bits on all stages, and wherever its states are.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "optim/factory.h"
#include "tests/equivalence/training_run.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/states_of.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace update_rules_test {

using optim::Moments;
using optim::OptimizerConfig;
using optim::OptimizerKind;

constexpr int kWorld = 2;
constexpr int kSteps = 3;

struct Rule {
  std::string name;
  OptimizerConfig config;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

std::vector<Rule> rules() {
  const optim::HyperParameters hyper{.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  return {
      {"Sgd", {.kind = OptimizerKind::sgd, .hyper = {.lr = 1e-2, .weight_decay = 0.1}}},
      {"Momentum", {.kind = OptimizerKind::sgd, .hyper = hyper, .nesterov = true}},
      {"AmsGrad", {.kind = OptimizerKind::adamw, .hyper = hyper, .amsgrad = true}},
      {"Lion", {.kind = OptimizerKind::lion, .hyper = hyper}},
      {"LionInBf16", {.kind = OptimizerKind::lion, .hyper = hyper, .moments = Moments::bf16}},
      {"Adagrad", {.kind = OptimizerKind::adagrad, .hyper = hyper, .lr_decay = 0.1}},
      {"Muon", {.kind = OptimizerKind::muon, .hyper = hyper}},
      {"MuonInF32",
       {.kind = OptimizerKind::muon,
        .hyper = hyper,
        .muon = {.scale = optim::MuonScale::match_rms, .products = DType::f32}}},
      {"MuonInBf16", {.kind = OptimizerKind::muon, .hyper = hyper, .moments = Moments::bf16}},
      {"AdagradInBf16", {.kind = OptimizerKind::adagrad, .hyper = hyper, .moments = Moments::bf16}},
      {"ScheduleFreeAdamW",
       {.kind = OptimizerKind::schedule_free,
        .hyper = hyper,
        .schedule_free = {.warmup_steps = 2, .r = 0.5}}},
      {"Adam8bit", {.kind = OptimizerKind::adam8bit, .hyper = hyper}},
      {"Lamb", {.kind = OptimizerKind::lamb, .hyper = hyper}},
      {"LambInBf16", {.kind = OptimizerKind::lamb, .hyper = hyper, .moments = Moments::bf16}},
      {"Adafactor", {.kind = OptimizerKind::adafactor, .hyper = hyper}},
      {"AdamWOfBf16Weights",
       {.kind = OptimizerKind::adamw, .hyper = hyper, .narrow_weights = true}},
      {"AmsGradOfBf16Weights",
       {.kind = OptimizerKind::adamw, .hyper = hyper, .amsgrad = true, .narrow_weights = true}},
      {"SgdOfBf16Weights",
       {.kind = OptimizerKind::sgd, .hyper = {.lr = 1e-2}, .narrow_weights = true}},
      {"MuonOfBf16WeightsInBf16",
       {.kind = OptimizerKind::muon,
        .hyper = hyper,
        .moments = Moments::bf16,
        .narrow_weights = true}},
      {"LambOfBf16Weights", {.kind = OptimizerKind::lamb, .hyper = hyper, .narrow_weights = true}},
      {"AdafactorOfBf16Weights",
       {.kind = OptimizerKind::adafactor, .hyper = hyper, .narrow_weights = true}},
  };
}

// Losses, then weights and all states, on rank 0.
std::vector<double> train(const EngineConfig& config) {
  std::vector<double> all;
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    std::vector<double> mine;
    const std::unique_ptr<nn::Model> model = test::make_tiny_model(test::Family::gpt2);
    Engine engine(*model, config, world);
    for (int64_t i = 0; i < kSteps * config.batch.accumulation; ++i) {
      engine.backward(
          engine.forward(test::make_batch(test::Family::gpt2, i * world.size() + world.rank())));
      mine.push_back(engine.step().loss);
    }
    const auto take = [&](const Tensor& tensor) {
      for (const float value : tensor.to_vector<float>()) mine.push_back(double{value});
    };
    for (const auto& [name, parameter] : model->named_parameters()) {
      take(engine.parameter(name));
      for (const auto& [kind, state] : test::states_of(engine, name)) take(state);
    }
    if (world.is_main()) all = std::move(mine);
  });
  return all;
}

class UpdateRules : public testing::TestWithParam<Rule> {};

TEST_P(UpdateRules, GiveTheSameBitsOnAllStagesAndTiers) {
  const offload::SwapFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (GetParam().config.narrow_weights && dtype != DType::bf16) continue;
    EngineConfig config = test::training_config(2, dtype, ReduceSchedule::micro_step);
    config.optimizer = GetParam().config;
    config.zero.stage = 0;
    const std::vector<double> wanted = train(config);
    ASSERT_GT(wanted.size(), 1000u);
    for (const int stage : {1, 2, 3}) {
      config.zero.stage = stage;
      EXPECT_TRUE(train(config) == wanted) << str(dtype, " stage ", stage);
    }
    config.zero.stage = 2;
    config.zero.sub_group_size = 5000;  // cuts parameters
    OffloadConfig& states = config.zero.offload_optimizer;
    states = {.device = OffloadDevice::cpu, .ratio = 1.0};
    EXPECT_TRUE(train(config) == wanted) << str(dtype, " in host memory");
    states.ratio = 0.4;
    EXPECT_TRUE(train(config) == wanted) << str(dtype, " split");
    config.offload_step = OffloadStep::device;
    EXPECT_TRUE(train(config) == wanted) << str(dtype, " updated on the device");
    config.offload_step = OffloadStep::host;
    states = {.device = OffloadDevice::nvme, .nvme_path = folder.path(), .pipeline_read = true};
    EXPECT_TRUE(train(config) == wanted) << str(dtype, " in swap space");
  }
}

INSTANTIATE_TEST_SUITE_P(All, UpdateRules, testing::ValuesIn(rules()),
                         [](const auto& info) { return info.param.name; });

}  // namespace update_rules_test
}  // namespace zinc::zero
