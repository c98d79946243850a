// The stages give the same bits between processes, too: a small part of tests/equivalence.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

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

INSTANTIATE_TEST_SUITE_P(Small, StagesOfProcesses,
                         testing::Values(Case{1, 1}, Case{1, 1, DType::bf16},
                                         Case{1, 2, DType::f32, ReduceSchedule::micro_step,
                                              training::Family::llama}));

}  // namespace stages_np2_np3_test
}  // namespace zinc::zero
