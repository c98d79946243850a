// The same bits wherever parameters live: device, host memory and NVMe, together with optimizer
// states on all three, against stage 0 with everything on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/trace.h"
#include "offload/file.h"
#include "offload/swap_space.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace parameter_placement_test {

using namespace test;

class ParameterPlacement : public testing::TestWithParam<Case> {};

TEST_P(ParameterPlacement, ChangesNoBit) {
  const Case c = GetParam();
  constexpr int kSteps = 4;  // f16: the first overflow
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, kSteps);
  for (const OffloadDevice optimizer : kDevices) {
    for (const OffloadDevice parameters : {OffloadDevice::cpu, OffloadDevice::nvme}) {
      EXPECT_TRUE(run(c, placed(config, optimizer, parameters, folder), kSteps) == reference)
          << "optimizer on " << name_of(optimizer) << ", parameters on " << name_of(parameters);
    }
  }
  EXPECT_TRUE(folder.is_empty());
}

INSTANTIATE_TEST_SUITE_P(Matrix, ParameterPlacement,
                         testing::Values(Case{1},
                                         Case{3, 2, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 1, DType::bf16}, Case{2, 1, DType::f16}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str("World", c.world, "Accumulation", c.accumulation,
                                      name_of(c.dtype));
                         });

// One buffer and many, overlap on and off, and a part of the groups in host memory.
TEST(ParameterPlacement, BuffersAndOverlapChangeNoBit) {
  const Case c{2, 2, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  for (const bool overlap : {false, true}) {
    for (const int64_t count : {1, 50}) {
      EngineConfig changed = placed(config, OffloadDevice::cpu, OffloadDevice::nvme, folder);
      changed.zero.overlap_comm = overlap;
      changed.zero.offload_param.buffer_count = count;
      changed.zero.offload_param.buffer_size = count == 1 ? 100'000 : 2048;
      changed.zero.offload_param.max_in_cpu = overlap ? 6000 : 0;
      changed.zero.max_reuse_distance = count == 1 ? 0 : 1'000'000;
      EXPECT_TRUE(run(c, changed, 2) == reference) << overlap << " " << count;
    }
  }
}

TEST(ParameterPlacement, ShuffledExecutionChangesNoBit) {
  const Case c{2, 2, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 2);
  for (const OffloadDevice optimizer : kDevices) {
    for (const OffloadDevice parameters : {OffloadDevice::cpu, OffloadDevice::nvme}) {
      for (const uint64_t seed : {1, 2, 3}) {
        EXPECT_TRUE(run(c, placed(config, optimizer, parameters, folder), 2,
                        {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}) ==
                    reference)
            << "optimizer on " << name_of(optimizer) << ", parameters on " << name_of(parameters)
            << ", seed " << seed;
      }
    }
  }
}

int64_t bytes_on_lane(const TraceRecorder& trace, int lane) {
  int64_t bytes = 0;
  int64_t end = 0;
  const std::vector<TraceEvent> events = trace.events();
  for (const TraceEvent& event : events) {
    if (event.lane != lane) continue;
    EXPECT_TRUE(event.begin_ns >= end || event.end_ns <= end);
    EXPECT_GE(event.end_ns, event.begin_ns);
    end = std::max(end, event.end_ns);
    bytes += event.bytes;
  }
  for (const TraceEvent& stall : events) {
    if (stall.name != "wait for a read" && stall.name != "wait for a write") continue;
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [&](const TraceEvent& event) { return event.id == stall.waited_for; }),
              1);
  }
  return bytes;
}

// Only gathered and small 16-bit parameters are on the device. Every byte comes from the disk once
// per pass and goes back once per step, past the page cache.
TEST(ParameterPlacement, OnNvme_ParametersTravelAndAreNowhereElse) {
  const offload::SwapFolder folder;
  if (!offload::open_unnamed(folder.path()).is_direct()) GTEST_SKIP() << "no O_DIRECT there";
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config =
        placed(config_of({1, 1, DType::bf16}), OffloadDevice::none, OffloadDevice::nvme, folder);
    config.zero.overlap_comm = false;
    config.zero.max_live_parameters = 0;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    int64_t kept = 0, swapped = 0, largest = 0;
    for (const ShardGroup& group :
         make_shard_groups(model, 1, config.zero.param_persistence_threshold)) {
      int64_t gathered = 0;
      for (const Segment& segment : group.segments()) {
        (is_persistent(segment.kind) ? kept : gathered) += segment.size;
      }
      swapped += gathered;
      largest = std::max(largest, gathered);
    }
    const Allocator& memory = world.context().allocator();
    EXPECT_EQ(memory.report().at(Tier::nvme, Label::parameters).live, swapped * 2);
    EXPECT_EQ(memory.report().at(Tier::device, Label::parameters).live, kept * 2);
    EXPECT_EQ(memory.report().at(Tier::pinned_host, Label::parameters).peak, 0);
    EXPECT_EQ(memory.report().at(Tier::pinned_host, Label::staging).live, 2 * 2048 * 2);
    const int64_t read = bytes_of_process("read_bytes:");
    trace.clear();
    engine.backward(engine.forward(make_batch(0)));
    EXPECT_GE(bytes_of_process("read_bytes:") - read, 2 * swapped * 2);
    EXPECT_EQ(memory.report().at(Tier::device, Label::parameters).peak, (kept + largest) * 2);
    // The trace has every transfer, one after the other on its lane, and each wait for one.
    EXPECT_EQ(bytes_on_lane(trace, offload::kReadLane), 2 * swapped * 2);
    EXPECT_EQ(bytes_on_lane(trace, offload::kWriteLane), 0);
    const int64_t written = bytes_of_process("write_bytes:");
    engine.step();
    EXPECT_EQ(bytes_on_lane(trace, offload::kWriteLane), swapped * 2);
    EXPECT_GE(bytes_of_process("write_bytes:") - written, swapped * 2);
    EXPECT_TRUE(folder.is_empty());
  });
}

// States of 16 bytes per parameter, 8 times what the device may hold and twice what the host may.
TEST(ParameterPlacement, AModelFarLargerThanDeviceAndHostTrains) {
  const offload::SwapFolder folder;
  nn::Gpt2Config shape = tiny_config();
  shape.num_layers = 24;
  shape.hidden_size = 48;
  const int64_t states = 16 * nn::Gpt2(shape).num_parameters();
  const Case c{1, 1, DType::bf16};
  const auto train = [&](const EngineConfig& config, bool limited) {
    std::vector<double> losses;
    comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
    if (limited) {
      connect.memory.limits[static_cast<size_t>(Tier::device)] = states / 8;
      connect.memory.limits[static_cast<size_t>(Tier::pinned_host)] = states / 2;
    }
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      nn::Gpt2 model(shape);
      Engine engine(model, config, world);
      for (int64_t step = 0; step < 2; ++step) {
        engine.backward(engine.forward(make_batch(step)));
        losses.push_back(engine.step().loss);
      }
    });
    return losses;
  };
  EngineConfig config = config_of(c);
  config.recompute.every_blocks = 1;
  const std::vector<double> reference = train(config, false);
  EXPECT_THROW(train(config, true), OutOfMemory);
  EngineConfig small = placed(config, OffloadDevice::nvme, OffloadDevice::nvme, folder);
  small.zero.sub_group_size = 16384;
  small.zero.prefetch_bucket_size = 0;
  small.zero.max_live_parameters = 0;
  EXPECT_EQ(train(small, true), reference);
}

TEST(ParameterPlacement, NeedsStage3AndAPath) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineConfig config = placed(config_of({}), OffloadDevice::none, OffloadDevice::cpu, folder);
    config.zero.stage = 2;
    EXPECT_THROW(Engine(model, config, world), ConfigError);
    config.zero.stage = 3;
    config.zero.offload_param.device = OffloadDevice::nvme;
    config.zero.offload_param.nvme_path.clear();
    EXPECT_THROW(Engine(model, config, world), ConfigError);
  });
}

}  // namespace parameter_placement_test
}  // namespace zinc::zero
