// Updates that end beside the next forward pass, where clipping or the overflow check decide over
// a step, give the bits of updates within it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "offload/swap_space.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace late_update_test {

using namespace test;

class LateUpdate : public testing::TestWithParam<Case> {};

TEST_P(LateUpdate, ChangesNoBit) {
  const Case c = GetParam();
  const EngineConfig config = config_of(c);
  ASSERT_GT(config.gradient.clipping, 0.0);
  // With f16 the first steps overflow.
  expect_bits_of_stage_0(c, config, c.dtype == DType::f16 ? 4 : 3);
}

INSTANTIATE_TEST_SUITE_P(Matrix, LateUpdate,
                         testing::Values(Case{1, 3, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 1, DType::f16},
                                         Case{3, 2, DType::bf16, ReduceSchedule::micro_step}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str("World", c.world, "Accumulation", c.accumulation,
                                      name_of(c.dtype));
                         });

// Weights that nobody reads between steps, and those that somebody does.
TEST(LateUpdate, OnStages1And2ChangesNoBit) {
  const Case c{2, 2, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 3);
  config.zero.sub_group_size = 2048;
  config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                   .nvme_path = folder.path(),
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  for (const int stage : {1, 2}) {
    config.zero.stage = stage;
    for (const uint64_t seed : {0, 1, 2}) {
      const auto execution =
          seed == 0 ? ContextOptions::Execution::concurrent : ContextOptions::Execution::shuffled;
      EXPECT_TRUE(run(c, config, 3, {.execution = execution, .shuffle_seed = seed}) == reference)
          << "stage " << stage << ", seed " << seed;
    }
  }
}

struct Seen {
  int beside = 0;  // transfers of states and updates that lie in the second forward pass
  int updates_beside = 0;
};

Seen what_lies_beside_forward(bool overlap) {
  const offload::SwapFolder folder;
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config =
        placed(config_of({1, 1, DType::bf16}), OffloadDevice::nvme, OffloadDevice::none, folder);
    config.overlap_update = overlap;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    engine.backward(engine.forward(make_batch(0)));
    engine.step();
    trace.clear();
    engine.forward(make_batch(1));
    engine.finish_update();
  });
  const std::vector<TraceEvent> events = trace.events();
  const auto forward = std::find_if(events.begin(), events.end(), [](const TraceEvent& event) {
    return event.name == "forward";
  });
  Seen seen;
  if (forward == events.end()) return seen;
  for (const TraceEvent& event : events) {
    if (event.begin_ns < forward->begin_ns || event.begin_ns > forward->end_ns) continue;
    if (event.lane == offload::kReadLane || event.lane == offload::kWriteLane) ++seen.beside;
    if (event.name == "adamw") ++seen.updates_beside;
  }
  return seen;
}

TEST(LateUpdate, TheTraceShowsItBesideForward) {
  const Seen late = what_lies_beside_forward(true);
  EXPECT_GT(late.beside, 0);
  EXPECT_GT(late.updates_beside, 0);
  const Seen within = what_lies_beside_forward(false);
  EXPECT_EQ(within.beside, 0);
  EXPECT_EQ(within.updates_beside, 0);
}

}  // namespace late_update_test
}  // namespace zinc::zero
