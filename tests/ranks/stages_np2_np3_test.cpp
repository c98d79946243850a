// The stages give the same bits between processes, too: a small part of tests/equivalence.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "tests/equivalence/training_run.h"

namespace zinc::zero {
namespace stages_np2_np3_test {

using training::Case;
using training::config_of;
using training::Outcome;
using training::train;

// The world of this process: MPI can be joined once.
class Job : public testing::Environment {
 public:
  void SetUp() override {
    world().emplace(
        comm::connect({.seed = 5, .num_threads = 1, .deadline = std::chrono::seconds(60)}));
  }
  void TearDown() override { world().reset(); }

  static std::optional<comm::World>& world() {
    static std::optional<comm::World> world;
    return world;
  }
};

const testing::Environment* const kJob = testing::AddGlobalTestEnvironment(new Job);

class StagesOfProcesses : public testing::TestWithParam<Case> {};

TEST_P(StagesOfProcesses, GiveTheSameBitsAsThreads) {
  comm::World& world = *Job::world();
  Case c = GetParam();
  c.world = world.size();
  const ContextScope scope(world.context());
  constexpr int kSteps = 4;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = train(c, config, kSteps, world);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_TRUE(training::run(c, config, kSteps) == reference) << "ranks as threads";
  for (const int stage : {1, 2, 3}) {
    config.zero.stage = stage;
    config.zero.overlap_comm = true;
    EXPECT_TRUE(train(c, config, kSteps, world, /*delays=*/true) == reference) << "stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Small, StagesOfProcesses,
    testing::Values(Case{1, 1}, Case{1, 1, DType::bf16}, Case{.wire = DType::bf16},
                    Case{1, 2, DType::f32, ReduceSchedule::micro_step, training::Family::llama}));

// A pipeline of processes has the bits of one rank alone.
TEST(PipelineOfProcesses, HasTheBitsOfARunWithoutOne) {
  comm::World& world = *Job::world();
  const ContextScope scope(world.context());
  Case c{.world = 1, .accumulation = 4, .family = training::Family::llama};
  constexpr int kSteps = 3;
  const EngineConfig config = config_of(c);
  const Outcome reference = training::run(c, config, kSteps);
  comm::RankSettings settings = world.settings();
  const comm::Mesh flat = std::exchange(settings.mesh, {.pipe = world.size()});
  world.configure(settings);
  {
    const std::unique_ptr<nn::Model> model = training::make_model(c);
    Engine engine(*model, config, world);
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<nn::Batch> batches;
      for (int64_t micro = 0; micro < c.accumulation; ++micro) {
        batches.push_back(test::make_batch(c.family, step * c.accumulation + micro));
      }
      engine.run_passes(batches);
      const StepResult result = engine.step();
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.gradient_norm);
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      for (const Tensor& tensor :
           {engine.parameter(name), engine.optimizer_state(name, "exp_avg")}) {
        const auto values = tensor.to_vector<float>();
        outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
      }
    }
    EXPECT_TRUE(outcome == reference);
  }
  settings.mesh = flat;
  world.configure(settings);
}

}  // namespace stages_np2_np3_test
}  // namespace zinc::zero
