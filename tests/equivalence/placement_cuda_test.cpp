// The same bits on a GPU wherever states and parameters live, against stage 0 with everything on
// the device. On the emulator under several schedules of its streams, see gpu_cuda_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "core/trace.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace placement_cuda_test {

using namespace test;

constexpr RunOptions kOnGpu{.device = {.kind = DeviceKind::cuda}};

struct Places {
  int stage = 1;
  OffloadDevice optimizer = OffloadDevice::cpu;
  OffloadDevice parameters = OffloadDevice::none;
  PassOrder order = PassOrder::horizontal;
  OffloadStep step = OffloadStep::host;
  double ratio = 1.0;
  OffloadDevice inputs = OffloadDevice::none;  // place of recomputation's inputs
  GradientOffload gradients = GradientOffload::host;
};

struct PlacedCase {
  Case run;
  std::vector<Places> places;
};

class GpuPlacement : public testing::TestWithParam<PlacedCase> {
 protected:
  ~GpuPlacement() override { choose(kSchedules[0]); }
};

TEST_P(GpuPlacement, ChangesNoBitUnderAnySchedule) {
  const Case& c = GetParam().run;
  constexpr int kSteps = 2;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  config.zero.overlap_comm = true;
  config.precision.loss_scale.initial_scale_power = 8;  // no step is skipped
  const Outcome reference = run(c, config, kSteps, kOnGpu);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  const offload::SwapFolder folder;
  size_t next = 0;
  for (const Places& p : GetParam().places) {
    EngineConfig moved = placed(config, p.optimizer, p.parameters, folder);
    moved.zero.stage = p.stage;
    moved.zero.max_reuse_distance = 0;
    moved.pass_order = p.order;
    moved.offload_step = p.step;
    moved.gradient_offload = p.gradients;
    moved.zero.offload_optimizer.ratio = p.ratio;
    if (p.inputs != OffloadDevice::none) {
      moved.recompute = {
          .every_blocks = 1,
          .offload = {.device = p.inputs, .nvme_path = folder.path(), .buffer_count = 2}};
    }
    const Schedule& schedule = kSchedules[next++ % std::size(kSchedules)];
    choose(schedule);
    EXPECT_TRUE(run(c, moved, kSteps, kOnGpu) == reference)
        << "stage " << p.stage << ", optimizer " << name_of(p.optimizer) << ", parameters "
        << name_of(p.parameters) << ", ratio " << p.ratio << ", inputs " << name_of(p.inputs)
        << ", gradients " << name_of(p.gradients) << ", schedule " << schedule.name;
    EXPECT_TRUE(folder.is_empty());
  }
}

constexpr auto kNone = OffloadDevice::none;
constexpr auto kHost = OffloadDevice::cpu;
constexpr auto kNvme = OffloadDevice::nvme;
constexpr auto kHorizontal = PassOrder::horizontal;
constexpr auto kVertical = PassOrder::vertical;
constexpr auto kByHost = OffloadStep::host;
constexpr auto kStreamed = OffloadStep::device;
constexpr auto kSwapped = GradientOffload::nvme;

INSTANTIATE_TEST_SUITE_P(
    Reduced, GpuPlacement,
    testing::Values(
        PlacedCase{{1}, {{1, kHost}, {3, kNvme, kNvme}, {3, kNone, kHost}}},
        PlacedCase{{2, 1, DType::bf16},
                   {{1, kNvme},
                    {3, kNvme, kNone, kHorizontal, kByHost, 1.0, kNone, kSwapped},
                    {3, kHost, kNvme},
                    {2, kHost, kNone, kHorizontal, kStreamed}}},
        PlacedCase{{1, 2, DType::bf16, ReduceSchedule::micro_step},
                   {{3, kNvme, kNvme, kVertical, kByHost, 1.0, kNvme},
                    {2, kNvme, kNone, kHorizontal, kByHost, 1.0, kNone, kSwapped},
                    {2, kHost},
                    {2, kHost, kNone, kHorizontal, kByHost, 1.0, kNvme},
                    {3, kHost, kHost, kVertical}}},
        PlacedCase{{.dtype = DType::bf16, .moments = optim::Moments::bf16},
                   {{1, kHost}, {3, kNvme, kNvme}, {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{.dtype = DType::bf16, .rule = optim::OptimizerKind::adam8bit},
                   {{1, kHost}, {3, kNvme, kNvme}, {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{.world = 2, .dtype = DType::bf16, .rule = optim::OptimizerKind::lamb},
                   {{3, kNvme, kNvme},
                    {2, kHost, kNone, kHorizontal, kByHost, 0.6},
                    {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{.dtype = DType::bf16, .narrow_weights = true},
                   {{1, kNone},
                    {3, kNvme, kNvme},
                    {3, kHost, kHost},
                    {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{.world = 2, .rule = optim::OptimizerKind::adafactor},
                   {{1, kNone}, {3, kNvme}, {2, kHost, kNone, kHorizontal, kByHost, 0.6}}},
        PlacedCase{{.dtype = DType::bf16, .rule = optim::OptimizerKind::schedule_free},
                   {{1, kHost}, {3, kNvme, kNvme}, {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{.world = 2, .dtype = DType::bf16, .rule = optim::OptimizerKind::one_bit_adam},
                   {{1, kNone},
                    {2, kHost},
                    {2, kNvme, kNone, kHorizontal, kByHost, 1.0, kNone, kSwapped},
                    {2, kHost, kNone, kHorizontal, kStreamed, 0.6}}},
        PlacedCase{{1, 1, DType::f16},
                   {{3, kNvme, kHost}, {3, kHost, kHost, kHorizontal, kStreamed}}},
        PlacedCase{{2},
                   {{1, kHost, kNone, kHorizontal, kByHost, 0.4},
                    {3, kHost, kHost, kHorizontal, kStreamed, 0.3}}},
        PlacedCase{{1, 2, DType::bf16, ReduceSchedule::micro_step},
                   {{2, kHost, kNone, kVertical, kStreamed, 0.9},
                    {3, kHost, kNvme, kVertical, kByHost, 0.4}}},
        PlacedCase{{.world = 2, .rule = optim::OptimizerKind::muon},
                   {{3, kHost, kHost, kHorizontal, kByHost, 0.4},
                    {2, kNvme, kNone, kHorizontal, kByHost, 1.0, kNone, kSwapped}}},
        PlacedCase{{.accumulation = 2,
                    .dtype = DType::bf16,
                    .schedule = ReduceSchedule::micro_step,
                    .moments = optim::Moments::bf16,
                    .rule = optim::OptimizerKind::muon},
                   {{2, kHost, kNone, kHorizontal, kStreamed, 0.4}}}),
    [](const auto& info) {
      const Case& c = info.param.run;
      return str("World", c.world, "Accumulation", c.accumulation, name_of(c.dtype),
                 info.param.places.front().ratio < 1.0 ? "Split" : "",
                 c.narrow_weights ? "NarrowWeights" : "",
                 c.rule == optim::OptimizerKind::adamw ? "" : name_of(c.rule));
    });

#if defined(ZINC_CUDA_EMULATED)
// The device's update and the CPU's wait for the same factor, not for each other: where work runs
// as late as it may, one stream or another, kernels of the one come between tiles of the other.
TEST(GpuPlacement, OfSplitStates_DeviceAndHostUpdateSideBySide) {
  int interleaved = 0;
  for (const uint64_t seed : {1, 2, 4}) {
    choose({"latest", ShuffledExecutor::Order::latest, seed});
    TraceRecorder trace;
    comm::ConnectOptions connect{.device = kOnGpu.device, .seed = 5, .num_threads = 1};
    connect.trace = &trace;
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      EngineConfig config = config_of({});
      config.zero.stage = 1;
      config.zero.sub_group_size = 2048;
      config.zero.offload_optimizer = {.device = kHost, .nvme_path = {}, .ratio = 0.5};
      config.overlap_update = false;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      engine.backward(engine.forward(make_batch(0)));
      engine.step();
      world.context().synchronize();
    });
    std::vector<TraceEvent> host;
    std::vector<TraceEvent> device;
    for (const TraceEvent& event : trace.events()) {
      if (event.lane == kHostStreamLane && event.name == "adamw") host.push_back(event);
      if (event.lane == 1 + static_cast<int>(StreamRole::compute) && event.name == "cuda kernel") {
        device.push_back(event);
      }
    }
    ASSERT_GT(host.size(), 2u);
    interleaved += std::any_of(device.begin(), device.end(), [&](const TraceEvent& event) {
      return event.begin_ns >= host.front().end_ns && event.end_ns <= host.back().begin_ns;
    });
  }
  choose(kSchedules[0]);
  EXPECT_GT(interleaved, 0);
}
#endif

// Equal bits mean little if nothing has moved.
TEST(GpuPlacement, StatesGradientsAndParametersLeaveTheDevice) {
  const auto report = [](OffloadDevice optimizer, OffloadDevice parameters) {
    MemoryReport report;
    const offload::SwapFolder folder;
    const Case c{1, 1, DType::bf16};
    comm::run_local_ranks(
        1, {.device = kOnGpu.device, .seed = 5, .num_threads = 1}, [&](comm::World& world) {
          EngineConfig config = placed(config_of(c), optimizer, parameters, folder);
          config.zero.max_reuse_distance = 0;
          nn::Gpt2 model(tiny_config());
          Engine engine(model, config, world);
          engine.backward(engine.forward(make_batch(0)));
          report = world.context().allocator().report();
          engine.step();
          engine.finish_update();
          EXPECT_EQ(
              world.context().allocator().report().at(Tier::pinned_host, Label::gradients).live, 0);
        });
    return report;
  };
  const auto live = [](const MemoryReport& report, Tier tier, Label label) {
    return report.at(tier, label).live;
  };
  const MemoryReport resident = report(kNone, kNone);
  const MemoryReport host = report(kHost, kHost);
  const MemoryReport disk = report(kNvme, kNvme);
  const int64_t states = live(resident, Tier::device, Label::optimizer);
  const int64_t gradients = live(resident, Tier::device, Label::gradients);
  for (const MemoryReport* moved : {&host, &disk}) {
    EXPECT_EQ(moved->at(Tier::device, Label::optimizer).peak, 0);
    EXPECT_LT(live(*moved, Tier::device, Label::gradients), gradients);
    EXPECT_GT(live(*moved, Tier::pinned_host, Label::gradients), gradients / 2);
    EXPECT_LT(live(*moved, Tier::device, Label::parameters),
              live(resident, Tier::device, Label::parameters));
    // The rest is the memory of one group at a time.
    EXPECT_LT(moved->at(Tier::device).peak, resident.at(Tier::device).peak - states);
  }
  EXPECT_EQ(live(host, Tier::pinned_host, Label::optimizer), states);
  EXPECT_EQ(live(disk, Tier::nvme, Label::optimizer), states);
  EXPECT_GT(live(disk, Tier::nvme, Label::parameters), 0);
}

}  // namespace placement_cuda_test
}  // namespace zinc::zero
