// Updates that begin during backward, where nothing can stop the step or change its factor, give
// the bits of updates after it.
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
namespace early_update_test {

using namespace test;

// Neither clipping nor an overflow check.
EngineConfig unstoppable(const Case& c) {
  EngineConfig config = config_of(c);
  config.gradient.clipping = 0.0;
  config.precision.check_overflow = false;
  return config;
}

class EarlyUpdate : public testing::TestWithParam<Case> {};

TEST_P(EarlyUpdate, ChangesNoBit) {
  expect_bits_of_stage_0(GetParam(), unstoppable(GetParam()), 2);
}

INSTANTIATE_TEST_SUITE_P(Matrix, EarlyUpdate,
                         testing::Values(Case{1, 3, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 1, DType::bf16},
                                         Case{3, 2, DType::bf16, ReduceSchedule::micro_step}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str("World", c.world, "Accumulation", c.accumulation,
                                      name_of(c.dtype));
                         });

TEST(EarlyUpdate, OnStages1And2ChangesNoBit) {
  const Case c{2, 2, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = unstoppable(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  config.zero.sub_group_size = 2048;
  config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                   .nvme_path = folder.path(),
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  for (const int stage : {1, 2}) {
    config.zero.stage = stage;
    EXPECT_TRUE(run(c, config, 2) == reference) << stage;
  }
}

struct Seen {
  int64_t reads = 0;  // reads of states, begun before backward ended
  int64_t all = 0;
};

Seen reads_of_states(double clipping) {
  const offload::SwapFolder folder;
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config =
        placed(unstoppable({1, 1, DType::bf16}), OffloadDevice::nvme, OffloadDevice::none, folder);
    config.gradient.clipping = clipping;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    trace.clear();
    engine.run_passes(std::vector{make_batch(0)});
    const bool under_way = clipping == 0.0;
    if (under_way) {
      EXPECT_THROW(engine.set_learning_rate(1.0), InvalidArgument);
      EXPECT_THROW(engine.parameter("transformer.h.1.ln_1.weight"), InvalidArgument);
    }
    engine.step();
    engine.parameter("transformer.h.1.ln_1.weight");
  });
  const std::vector<TraceEvent> events = trace.events();
  const auto backward = std::find_if(events.begin(), events.end(), [](const TraceEvent& event) {
    return event.name == "backward";
  });
  Seen seen;
  if (backward == events.end()) return seen;
  for (const TraceEvent& event : events) {
    if (event.lane != offload::kReadLane) continue;
    ++seen.all;
    if (event.begin_ns < backward->end_ns) ++seen.reads;
  }
  return seen;
}

TEST(EarlyUpdate, ReadsStatesWhileBackwardGoesOn) {
  const Seen early = reads_of_states(0.0);
  EXPECT_GT(early.all, 0);
  EXPECT_GT(early.reads, 0);
  const Seen late = reads_of_states(0.5);
  EXPECT_GT(late.all, 0);
  EXPECT_EQ(late.reads, 0);
}

}  // namespace early_update_test
}  // namespace zinc::zero
