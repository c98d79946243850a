// On a GPU the host updates states in its memory beside what the device does: the bits of stage 0
// with everything on the device, under several schedules of the emulator's streams.
#include <algorithm>

#include "core/host_stream.h"
#include "core/trace.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/equivalence/host_update_run.h"

namespace zinc::zero {
namespace host_update_cuda_test {

using namespace test;

constexpr Device kGpu{.kind = DeviceKind::cuda};
constexpr auto kNone = OffloadDevice::none;
constexpr auto kHost = OffloadDevice::cpu;
constexpr auto kNvme = OffloadDevice::nvme;
constexpr auto kHorizontal = PassOrder::horizontal;
constexpr auto kVertical = PassOrder::vertical;
constexpr auto kMicroStep = ReduceSchedule::micro_step;

class GpuHostUpdate : public testing::TestWithParam<HostUpdateCase> {
 protected:
  ~GpuHostUpdate() override { choose(kSchedules[0]); }
};

TEST_P(GpuHostUpdate, BesidePasses_ChangesNoBitUnderAnySchedule) {
  const HostUpdateCase& c = GetParam();
  const int steps = c.run.dtype == DType::f16 ? 4 : 2;  // f16: the first ones are skipped
  EngineConfig config = host_update_config(c);
  config.zero.stage = 0;
  const Outcome reference = run(c.run, config, steps, {.device = kGpu});
  ASSERT_TRUE(reference == reference);  // no NaN
  const offload::SwapFolder folder;
  size_t next = c.is_early ? 1 : 0;
  for (const HostUpdateWay& way : c.ways) {
    EngineConfig moved = host_update_config(c, way, folder);
    moved.overlap_update.reset();  // a GPU's default
    const Schedule& schedule = kSchedules[next++ % std::size(kSchedules)];
    choose(schedule);
    EXPECT_TRUE(run(c.run, moved, steps, {.device = kGpu}) == reference)
        << words_of(way) << ", schedule " << schedule.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reduced, GpuHostUpdate,
    testing::Values(HostUpdateCase{{2, 1, DType::f16}, false, {{1}, {3, kHost}}},
                    HostUpdateCase{
                        {1, 2, DType::bf16, kMicroStep},
                        false,
                        {{2, kNone, kVertical, 0.4}, {1}, {3, kHost, kHorizontal, 1.0, kHost}}},
                    HostUpdateCase{{2, 1, DType::bf16}, false, {{3, kNvme}, {3}}},
                    HostUpdateCase{{1, 1, DType::f32}, true, {{1}, {3, kHost}, {3, kNvme}}},
                    HostUpdateCase{{1, 2, DType::bf16, kMicroStep},
                                   true,
                                   {{2, kNone, kHorizontal, 0.4, kHost}, {2, kNone, kVertical}}}),
    [](const auto& info) { return name_of(info.param); });

TEST(GpuHostUpdate, ValuesSeenBetweenStepsAreThoseOfTheDevice) {
  const offload::SwapFolder folder;
  const HostUpdateCase c{{1, 1, DType::bf16}};
  EngineConfig config = host_update_config(c);
  config.zero.stage = 0;
  const std::vector<float> reference = seen_between_steps(config, kGpu, 1, 3);
  const EngineConfig moved = host_update_config(c, {.stage = 3}, folder);
  choose(kSchedules[1]);
  EXPECT_TRUE(seen_between_steps(moved, kGpu, 1, 3) == reference);
  choose(kSchedules[0]);
}

TEST(GpuHostUpdate, ThatFails_IsTheErrorOfEveryCallAfterIt) {
  const offload::SwapFolder folder;
  expect_error_of_a_late_update(host_update_config({{1, 1, DType::bf16}}, {}, folder), kGpu);
}

#if defined(ZINC_CUDA_EMULATED)
struct Seen {
  int64_t all = 0;     // updates by the host
  int64_t beside = 0;  // those after the first and before the last kernel of the device
};

// The step that is updated came before the passes that are looked at, or ends with them.
Seen updates_beside_kernels(bool is_early, std::optional<bool> overlap, const Schedule& schedule) {
  choose(schedule);
  const offload::SwapFolder folder;
  TraceRecorder trace;
  comm::ConnectOptions connect{.device = kGpu, .seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config = host_update_config({{1, 1, DType::bf16}, is_early}, {}, folder);
    config.overlap_update = overlap;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    engine.run_passes(std::vector{make_batch(0)});
    engine.step();
    // An update within its step ends here.
    world.context().compute()->synchronize();
    if (is_early) {
      world.context().synchronize();
      trace.clear();
      engine.run_passes(std::vector{make_batch(1)});
      engine.step();
    } else {
      trace.clear();
      engine.forward(make_batch(1));
    }
    world.context().synchronize();
  });
  choose(kSchedules[0]);
  std::vector<TraceEvent> host;
  std::vector<TraceEvent> device;
  for (const TraceEvent& event : trace.events()) {
    if (event.lane == kHostStreamLane && event.name == "adamw") host.push_back(event);
    if (event.lane == 1 + static_cast<int>(StreamRole::compute) && event.name == "cuda kernel") {
      device.push_back(event);
    }
  }
  Seen seen{.all = static_cast<int64_t>(host.size())};
  if (device.empty()) return seen;
  seen.beside = std::count_if(host.begin(), host.end(), [&](const TraceEvent& event) {
    return event.begin_ns >= device.front().end_ns && event.end_ns <= device.back().begin_ns;
  });
  return seen;
}

// An update of the next pass that runs as late as it may does so behind kernels of that pass, one
// that begins during backward and runs as early as it may before kernels of it.
TEST(GpuHostUpdate, TheTraceShowsItBesideKernelsOfThePasses) {
  for (const bool is_early : {false, true}) {
    using Order = ShuffledExecutor::Order;
    const Schedule schedule{"one", is_early ? Order::earliest : Order::latest, 1};
    EXPECT_GT(updates_beside_kernels(is_early, std::nullopt, schedule).beside, 0) << is_early;
    EXPECT_EQ(updates_beside_kernels(is_early, false, schedule).beside, 0) << is_early;
  }
}
#endif

}  // namespace host_update_cuda_test
}  // namespace zinc::zero
