// The same bits with the sums of gradients in swap space, and that they really travel there.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "offload/file.h"
#include "offload/swap_space.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/damaged_page.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace gradients_on_nvme_test {

using namespace test;

EngineConfig gradients_on_nvme(EngineConfig config, const offload::SwapFolder& folder,
                               OffloadDevice parameters = OffloadDevice::none) {
  config = placed(config, OffloadDevice::nvme, parameters, folder);
  config.gradient_offload = GradientOffload::nvme;
  return config;
}

class GradientsOnNvme : public testing::TestWithParam<Case> {};

TEST_P(GradientsOnNvme, ChangeNoBit) {
  const Case c = GetParam();
  const int steps = c.dtype == DType::f16 ? 4 : 2;  // the first ones overflow
  const offload::SwapFolder folder;
  const bool tree = c.determinism == Determinism::world && c.accumulation > 1;
  // With clipping the update ends beside the next forward pass; without it the update begins in
  // backward.
  for (const double clipping : {0.5, 0.0}) {
    EngineConfig config = config_of(c);
    config.gradient.clipping = clipping;
    config.zero.stage = 0;
    const Outcome reference = run(c, config, steps);
    ASSERT_EQ(reference.losses.size(), static_cast<size_t>(steps));
    struct Way {
      int stage;
      OffloadDevice parameters;
      PassOrder order;
      bool pipeline;
      uint64_t seed;  // 0: as fast as can be
    };
    for (const Way& way : {Way{1, OffloadDevice::none, PassOrder::horizontal, true, 0},
                           Way{2, OffloadDevice::none, PassOrder::horizontal, false, 0},
                           Way{2, OffloadDevice::none, PassOrder::horizontal, true, 1},
                           Way{3, OffloadDevice::nvme, PassOrder::horizontal, true, 0},
                           Way{3, OffloadDevice::none, PassOrder::horizontal, true, 2},
                           Way{3, OffloadDevice::nvme, PassOrder::vertical, true, 3}}) {
      if (tree && way.order == PassOrder::horizontal) continue;
      const bool boundary = c.schedule == ReduceSchedule::boundary && c.accumulation > 1;
      if (boundary && way.stage != 1) continue;
      EngineConfig moved = gradients_on_nvme(config, folder, way.parameters);
      moved.zero.stage = way.stage;
      if (boundary) moved.gradient.reduce_schedule = ReduceSchedule::boundary;
      if (way.stage == 1 && !boundary) moved.gradient.reduce_schedule = c.schedule;
      moved.zero.overlap_comm = way.seed > 0;
      moved.zero.offload_optimizer.pipeline_read = way.pipeline;
      moved.zero.offload_optimizer.pipeline_write = way.pipeline;
      moved.pass_order = way.order;
      const auto execution = way.seed > 0 ? ContextOptions::Execution::shuffled
                                          : ContextOptions::Execution::concurrent;
      EXPECT_TRUE(run(c, moved, steps, {.execution = execution, .shuffle_seed = way.seed}) ==
                  reference)
          << "stage " << way.stage << ", parameters on " << name_of(way.parameters) << ", "
          << name_of(way.order) << ", seed " << way.seed << ", clipping " << clipping;
      EXPECT_TRUE(folder.is_empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, GradientsOnNvme,
                         testing::Values(Case{1, 1, DType::bf16}, Case{2, 1, DType::f16},
                                         Case{3, 2, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 3, DType::bf16, ReduceSchedule::micro_step},
                                         Case{2, 2, DType::f16, ReduceSchedule::micro_step},
                                         Case{2, 2, DType::bf16, ReduceSchedule::boundary},
                                         Case{2, 3, DType::f32, ReduceSchedule::micro_step,
                                              Determinism::world}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str(
                               "World", c.world, "Accumulation", c.accumulation, name_of(c.dtype),
                               c.schedule == ReduceSchedule::boundary ? "Boundary" : "MicroStep",
                               c.determinism == Determinism::world ? "World" : "");
                         });

// Sums that are kept in 16 bits are rounded after every micro-batch.
TEST(GradientsOnNvme, KeptIn16BitsOverMicroBatches_ChangeNoBit) {
  const Case c{2, 3, DType::bf16, ReduceSchedule::micro_step};
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.gradient.accumulation_dtype = DType::bf16;
  config.zero.stage = 2;
  const Outcome reference = run(c, config, 3);
  EXPECT_TRUE(run(c, gradients_on_nvme(config, folder), 3) == reference);
}

// Gradients can also be read while an update that has begun in backward reads them.
TEST(GradientsOnNvme, AreGivenBetweenBackwardAndStep) {
  const offload::SwapFolder folder;
  const auto gradients = [&](GradientOffload place) {
    std::vector<float> seen;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = gradients_on_nvme(config_of({}), folder);
      config.gradient.clipping = 0.0;
      config.gradient_offload = place;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      for (int64_t step = 0; step < 3; ++step) {
        engine.run_passes(std::vector{make_batch(step)});
        for (const auto& [name, parameter] : model.named_parameters()) {
          const auto values = engine.gradient(name).to_vector<float>();
          seen.insert(seen.end(), values.begin(), values.end());
        }
        engine.step();
      }
    });
    return seen;
  };
  const std::vector<float> reference = gradients(GradientOffload::host);
  EXPECT_GT(reference.size(), 10'000u);
  EXPECT_TRUE(gradients(GradientOffload::nvme) == reference);
}

// Reductions, and with them all transfers, come after backward then.
TEST(GradientsOnNvme, OfADynamicModel_ChangeNoBit) {
  const offload::SwapFolder folder;
  const auto weights = [&](GradientOffload place) {
    std::vector<float> found;
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config =
          gradients_on_nvme(config_of({2, 2, DType::bf16, ReduceSchedule::micro_step}), folder);
      config.gradient_offload = place;
      nn::Gpt2 model(tiny_config());
      EngineOptions options;
      options.dynamic_model = true;
      Engine engine(model, config, world, std::move(options));
      for (int64_t i = 0; i < 4; ++i) {
        engine.backward(engine.forward(make_batch(2 * i + world.rank())));
        engine.step();
      }
      const std::vector<float> values = weights_and_states_of(engine);
      if (world.is_main()) found = values;
    });
    return found;
  };
  const std::vector<float> reference = weights(GradientOffload::host);
  EXPECT_GT(reference.size(), 10'000u);
  EXPECT_TRUE(weights(GradientOffload::nvme) == reference);
}

struct Moved {
  offload::SwapTraffic swap;  // in the second of two steps
  int64_t process_wrote = 0;
  int64_t process_read = 0;
  int64_t trained = 0;  // elements
  MemoryReport memory;
  int64_t device_between = 0;  // gradients on the device between two micro-batches
  std::vector<TraceEvent> events;
};

Moved train_two_steps(GradientOffload place, PassOrder order, int64_t accumulation, DType dtype) {
  const offload::SwapFolder folder;
  Moved moved;
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config =
        gradients_on_nvme(config_of({1, accumulation, dtype, ReduceSchedule::micro_step}), folder);
    config.gradient_offload = place;
    config.zero.stage = 2;
    config.pass_order = order;
    config.zero.sub_group_size = 4096;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    for (const ShardGroup& group :
         make_shard_groups(model, 1, config.zero.param_persistence_threshold)) {
      moved.trained += group.trained_numel();
    }
    for (int step = 0; step < 2; ++step) {
      const offload::SwapTraffic before = engine.usage().swap;
      const int64_t wrote = bytes_of_process("write_bytes:");
      const int64_t read = bytes_of_process("read_bytes:");
      for (int64_t i = 0; i < accumulation; i += config.batches_together()) {
        std::vector<nn::Batch> batches;
        for (int64_t j = 0; j < config.batches_together(); ++j)
          batches.push_back(make_batch(i + j));
        engine.run_passes(batches);
        if (step == 1 && i == 0) {
          world.context().synchronize();
          moved.device_between =
              world.context().allocator().report().at(Tier::device, Label::gradients).live;
        }
        engine.step();
      }
      engine.finish_update();
      moved.swap = engine.usage().swap - before;
      moved.process_wrote = bytes_of_process("write_bytes:") - wrote;
      moved.process_read = bytes_of_process("read_bytes:") - read;
    }
    moved.memory = world.context().allocator().report();
  });
  moved.events = trace.events();
  return moved;
}

// On NVMe sums leave after every micro-batch and come back for the next, and once for the update.
TEST(GradientsOnNvme, TravelPastThePageCache_AndAreNowhereElse) {
  const offload::SwapFolder folder;
  if (!offload::open_unnamed(folder.path()).is_direct()) GTEST_SKIP() << "no O_DIRECT there";
  struct Way {
    PassOrder order;
    int64_t accumulation;
    DType dtype;
    int64_t bytes;  // of a sum's element
    int64_t times;  // number of times that sums leave
  };
  for (const Way& way : {Way{PassOrder::horizontal, 3, DType::bf16, 4, 3},
                         Way{PassOrder::horizontal, 1, DType::bf16, 2, 1},
                         Way{PassOrder::vertical, 3, DType::f32, 4, 1}}) {
    const auto train = [&](GradientOffload place) {
      return train_two_steps(place, way.order, way.accumulation, way.dtype);
    };
    const Moved device = train(GradientOffload::device);
    const Moved host = train(GradientOffload::host);
    const Moved nvme = train(GradientOffload::nvme);
    const int64_t sums = nvme.trained * way.bytes;
    const int64_t states = nvme.trained * 12;
    EXPECT_EQ(host.swap.bytes_written, states);
    EXPECT_EQ(nvme.swap.bytes_written, states + way.times * sums);
    EXPECT_EQ(nvme.swap.bytes_read, states + way.times * sums);
    EXPECT_GE(nvme.process_wrote, nvme.swap.bytes_written);
    EXPECT_GE(nvme.process_read, nvme.swap.bytes_read);

    EXPECT_EQ(host.memory.at(Tier::pinned_host, Label::gradients).peak, sums);
    EXPECT_EQ(nvme.memory.at(Tier::pinned_host, Label::gradients).peak, 0);
    EXPECT_EQ(nvme.memory.at(Tier::nvme, Label::gradients).live, sums);
    // Two buffers of a tile out, two back where sums come back, and one beside each of states.
    const int64_t buffers = (way.times > 1 ? 4 : 2) + 3;
    EXPECT_EQ(nvme.memory.at(Tier::pinned_host, Label::staging).peak -
                  device.memory.at(Tier::pinned_host, Label::staging).peak,
              buffers * 4096 * way.bytes);
    EXPECT_EQ(device.memory.at(Tier::pinned_host, Label::gradients).peak, sums);
    if (way.times > 1) {
      EXPECT_GE(device.device_between, sums);
      EXPECT_LT(host.device_between, sums / 2);
      EXPECT_LT(nvme.device_between, sums / 2);
      EXPECT_GT(host.memory.at(Tier::pinned_host, Label::staging).peak,
                device.memory.at(Tier::pinned_host, Label::staging).peak);
    } else {
      EXPECT_EQ(host.memory.at(Tier::pinned_host).peak, device.memory.at(Tier::pinned_host).peak);
    }
  }
}

// Written and read ahead while backward goes on, in lanes of their own.
TEST(GradientsOnNvme, TheTraceShowsThemBesideBackward) {
  const Moved moved = train_two_steps(GradientOffload::nvme, PassOrder::horizontal, 2, DType::f32);
  const auto of_gradients = [&](int lane) {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : moved.events) {
      if (event.lane == lane && event.name.starts_with("gradients of ")) found.push_back(event);
    }
    return found;
  };
  int written = 0, read = 0;
  for (const TraceEvent& event : moved.events) {
    if (event.name != "backward") continue;
    const auto inside = [&](const TraceEvent& other) {
      return other.begin_ns > event.begin_ns && other.begin_ns < event.end_ns;
    };
    for (const TraceEvent& other : of_gradients(offload::kWriteLane)) written += inside(other);
    for (const TraceEvent& other : of_gradients(offload::kReadLane)) read += inside(other);
  }
  EXPECT_GT(written, 4 * 4);  // some groups in each of four passes
  EXPECT_GT(read, 2 * 4);     // some groups in the second passes of a step
}

// The swap file of gradients is made after that of states.
TEST(GradientsOnNvme, WrongBytes_AreAnErrorOfWhoeverReadsThem) {
  for (const int64_t accumulation : {1, 2}) {
    const offload::SwapFolder folder;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = gradients_on_nvme(
          config_of({1, accumulation, DType::f32, ReduceSchedule::micro_step}), folder);
      config.zero.stage = 2;
      config.overlap_update = false;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      engine.backward(engine.forward(make_batch(0)));
      world.context().synchronize();
      if (accumulation > 1) engine.step();
      const int64_t page = offload::DamagedPage::pages_in(folder, 1) / 2;
      const offload::DamagedPage damaged(folder, page, 1);
      const IoError error = offload::io_error_of([&] {
        if (accumulation == 1) {
          engine.step();
        } else {
          engine.backward(engine.forward(make_batch(1)));
        }
      });
      EXPECT_EQ(error.error_number(), EIO);
      EXPECT_NE(std::string(error.what()).find("CRC-32C"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("nvme_path"), std::string::npos) << error.what();
    });
    EXPECT_TRUE(folder.is_empty());
  }
}

TEST(GradientsOnNvme, AnEngineThatGoesWhileTheyTravelLeavesNothing) {
  for (const uint64_t seed : {0, 1, 2}) {
    const offload::SwapFolder folder;
    comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
    connect.memory.poison = true;
    if (seed > 0) connect.execution = ContextOptions::Execution::shuffled;
    connect.shuffle_seed = seed;
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      {
        const Case c{1, 3, DType::bf16, ReduceSchedule::micro_step};
        Engine engine(model, gradients_on_nvme(config_of(c), folder), world);
        for (int64_t i = 0; i < 2; ++i) {
          engine.backward(engine.forward(make_batch(i)));
          engine.step();
        }
      }
      EXPECT_EQ(world.context().allocator().report().at(Tier::nvme).live, 0);
      EXPECT_EQ(world.context().allocator().report().at(Tier::pinned_host).live, 0);
      EXPECT_EQ(world.context().allocator().report().at(Tier::device).live, 0);
    });
    EXPECT_TRUE(folder.is_empty());
  }
}

// The message of the ConfigError.
std::string refusal_of(const EngineConfig& config) {
  try {
    validate(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(GradientsOnNvme, WhatTheyDoNotGoWithIsRefusedByName) {
  const offload::SwapFolder folder;
  const EngineConfig good =
      gradients_on_nvme(config_of({1, 2, DType::bf16, ReduceSchedule::micro_step}), folder);
  EXPECT_EQ(refusal_of(good), "");
  EngineConfig states_elsewhere = good;
  for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
    states_elsewhere.zero.offload_optimizer.device = device;
    const std::string why = refusal_of(states_elsewhere);
    EXPECT_NE(why.find("gradient_offload"), std::string::npos) << why;
    EXPECT_NE(why.find("needs offload_optimizer with \"device\": \"nvme\""), std::string::npos)
        << why;
  }
  EngineConfig ratio = good;
  ratio.zero.offload_optimizer.ratio = 0.5;
  EXPECT_NE(refusal_of(ratio).find("ratio"), std::string::npos);
  EngineConfig on_device = good;
  on_device.offload_step = OffloadStep::device;
  EXPECT_NE(refusal_of(on_device).find("offload_step"), std::string::npos);
  EngineConfig world = good;
  world.determinism = Determinism::world;
  EXPECT_NE(refusal_of(world).find("add \"schedule\": \"vertical\""), std::string::npos)
      << refusal_of(world);
  world.pass_order = PassOrder::vertical;
  EXPECT_EQ(refusal_of(world), "");
  world.pass_order = PassOrder::horizontal;
  world.batch.accumulation = 1;
  EXPECT_EQ(refusal_of(world), "");
}

}  // namespace gradients_on_nvme_test
}  // namespace zinc::zero
