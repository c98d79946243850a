// Updates of states in host memory that go on beside the next forward pass, or beside backward
// where nothing can stop a step, give the bits of stage 0 with everything on the device.
#include "tests/equivalence/host_update_run.h"

#include <algorithm>

#include "core/trace.h"

namespace zinc::zero {
namespace host_update_test {

using namespace test;

constexpr auto kNone = OffloadDevice::none;
constexpr auto kHost = OffloadDevice::cpu;
constexpr auto kNvme = OffloadDevice::nvme;
constexpr auto kHorizontal = PassOrder::horizontal;
constexpr auto kVertical = PassOrder::vertical;

class HostUpdate : public testing::TestWithParam<HostUpdateCase> {};

TEST_P(HostUpdate, BesidePasses_ChangesNoBit) {
  const HostUpdateCase& c = GetParam();
  const int steps = c.run.dtype == DType::f16 ? 4 : 3;  // f16: the first ones are skipped
  EngineConfig config = host_update_config(c);
  config.zero.stage = 0;
  const Outcome reference = run(c.run, config, steps);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(steps));
  const offload::SwapFolder folder;
  for (const HostUpdateWay& way : c.ways) {
    const EngineConfig moved = host_update_config(c, way, folder);
    EXPECT_TRUE(run(c.run, moved, steps) == reference) << words_of(way);
    for (const uint64_t seed : {1, 2}) {
      EXPECT_TRUE(run(c.run, moved, steps,
                      {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}) ==
                  reference)
          << words_of(way) << ", seed " << seed;
    }
  }
}

constexpr auto kMicroStep = ReduceSchedule::micro_step;
INSTANTIATE_TEST_SUITE_P(
    Matrix, HostUpdate,
    testing::Values(
        HostUpdateCase{{1, 3, DType::f32, kMicroStep},
                       false,
                       {{1}, {2, kNone, kVertical, 0.4}, {3, kHost, kHorizontal, 1.0, kHost}}},
        HostUpdateCase{{2, 1, DType::f16}, false, {{1, kNone, kHorizontal, 0.4}, {3, kHost}}},
        HostUpdateCase{{3, 2, DType::bf16, kMicroStep},
                       false,
                       {{2}, {3}, {3, kNvme, kVertical}, {3, kNvme, kHorizontal, 0.4}}},
        HostUpdateCase{{1, 3, DType::f32, kMicroStep},
                       true,
                       {{1}, {3, kHost, kVertical}, {2, kNone, kHorizontal, 0.4, kHost}}},
        HostUpdateCase{{2, 1, DType::bf16}, true, {{1}, {3, kNone, kHorizontal, 0.4}, {3, kNvme}}},
        HostUpdateCase{{3, 2, DType::bf16, kMicroStep}, true, {{2, kNone, kVertical}, {3, kHost}}}),
    [](const auto& info) { return name_of(info.param); });

TEST(HostUpdate, ValuesSeenBetweenStepsAreThoseOfTheDevice) {
  const offload::SwapFolder folder;
  const HostUpdateCase c{{2, 1, DType::bf16}};
  EngineConfig config = host_update_config(c);
  config.zero.stage = 0;
  const std::vector<float> reference = seen_between_steps(config, kCpu, 2, 6);
  ASSERT_GT(reference.size(), 10'000u);
  for (const HostUpdateWay& way : {HostUpdateWay{1}, HostUpdateWay{3, kHost}}) {
    EXPECT_EQ(seen_between_steps(host_update_config(c, way, folder), kCpu, 2, 6), reference)
        << words_of(way);
  }
}

TEST(HostUpdate, ThatFails_IsTheErrorOfEveryCallAfterIt) {
  const offload::SwapFolder folder;
  for (const int stage : {1, 3}) {
    expect_error_of_a_late_update(
        host_update_config({{1, 1, DType::bf16}}, {.stage = stage}, folder), kCpu);
  }
}

// On a CPU rank the update takes the cores that the passes take: it stays in its step unless the
// configuration says otherwise.
TEST(HostUpdate, LiesInTheNextForwardPassWhereTheConfigurationSaysSo) {
  const auto updates_in_forward = [](std::optional<bool> overlap) {
    const offload::SwapFolder folder;
    TraceRecorder trace;
    comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
    connect.trace = &trace;
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      EngineConfig config = host_update_config({{1, 1, DType::bf16}}, {}, folder);
      config.overlap_update = overlap;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      engine.backward(engine.forward(make_batch(0)));
      engine.step();
      trace.clear();
      engine.forward(make_batch(1));
      world.context().synchronize();
    });
    const std::vector<TraceEvent> events = trace.events();
    return std::count_if(events.begin(), events.end(),
                         [](const TraceEvent& event) { return event.name == "adamw"; });
  };
  EXPECT_GT(updates_in_forward(true), 0);
  EXPECT_EQ(updates_in_forward(false), 0);
  EXPECT_EQ(updates_in_forward(std::nullopt), 0);
}

}  // namespace host_update_test
}  // namespace zinc::zero
