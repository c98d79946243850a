// The same bits with the inputs of recomputation on NVMe; and that they are there, and nowhere
// else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
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

namespace zinc::zero {
namespace saved_inputs_test {

using namespace test;

RecomputeConfig inputs_on_nvme(const offload::SwapFolder& folder, int64_t every, int64_t buffers) {
  return {.every_blocks = every,
          .offload = {
              .device = OffloadDevice::nvme, .nvme_path = folder.path(), .buffer_count = buffers}};
}

class InputsOnNvme : public testing::TestWithParam<Case> {};

TEST_P(InputsOnNvme, ChangeNoBitOnAnyStage) {
  const Case c = GetParam();
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  config.aio.block_size = 4096;
  const Outcome reference = run(c, config, 2);
  struct Way {
    int stage;
    int64_t every;
    int64_t buffers;
    PassOrder order = PassOrder::horizontal;
  };
  for (const Way& way : {Way{0, 1, 1}, Way{2, 2, 1}, Way{3, 1, 3},
                         Way{1, 1, 1, PassOrder::vertical}, Way{3, 1, 3, PassOrder::vertical}}) {
    EngineConfig changed = config;
    changed.zero.stage = way.stage;
    if (way.stage >= 2) changed.gradient.reduce_schedule.reset();
    changed.pass_order = way.order;
    changed.recompute = inputs_on_nvme(folder, way.every, way.buffers);
    EXPECT_TRUE(run(c, changed, 2) == reference)
        << "stage " << way.stage << ", every " << way.every << ", " << way.buffers << " buffers, "
        << name_of(way.order);
  }
  EngineConfig all = placed(config, OffloadDevice::nvme, OffloadDevice::nvme, folder);
  all.recompute = inputs_on_nvme(folder, 1, 2);
  for (const uint64_t seed : {1, 2}) {
    all.pass_order = seed == 2 ? PassOrder::vertical : PassOrder::horizontal;
    EXPECT_TRUE(
        run(c, all, 2, {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}) ==
        reference)
        << "everything on NVMe, seed " << seed;
  }
  EXPECT_TRUE(folder.is_empty());
}

INSTANTIATE_TEST_SUITE_P(Matrix, InputsOnNvme,
                         testing::Values(Case{1, 3, DType::f32, ReduceSchedule::micro_step},
                                         Case{2, 2, DType::bf16, ReduceSchedule::micro_step}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str("World", c.world, "Accumulation", c.accumulation,
                                      name_of(c.dtype));
                         });

struct Moved {
  MemoryReport memory;
  offload::SwapTraffic first, second;  // by step
  int64_t process_wrote = 0;
  std::vector<TraceEvent> events;
};

constexpr int64_t kSequences = 8;
constexpr int64_t kTokens = 16;
constexpr int64_t kInput = kSequences * kTokens * 24 * 4;  // [8, 16, 24] f32, three pages

Moved train_two_steps(const RecomputeConfig& recompute, PassOrder order, int64_t accumulation) {
  Moved moved;
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    EngineConfig config;
    config.batch = {.micro_batch = kSequences, .accumulation = accumulation};
    config.pass_order = order;
    config.recompute = recompute;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    const int64_t wrote = bytes_of_process("write_bytes:");
    for (offload::SwapTraffic* step : {&moved.first, &moved.second}) {
      const offload::SwapTraffic before = engine.usage().swap;
      for (int64_t i = 0; i < accumulation; i += config.batches_together()) {
        std::vector<nn::Batch> batches;
        for (int64_t j = 0; j < config.batches_together(); ++j) {
          batches.push_back(make_batch(i + j, kSequences, kTokens));
        }
        engine.run_passes(batches);
        engine.step();
      }
      *step = engine.usage().swap - before;
    }
    moved.process_wrote = bytes_of_process("write_bytes:") - wrote;
    moved.memory = world.context().allocator().report();
  });
  moved.events = trace.events();
  return moved;
}

int64_t bytes_on(const Moved& moved, int lane) {
  int64_t bytes = 0;
  for (const TraceEvent& event : moved.events) {
    if (event.lane != lane || event.name.find("saved input") != 0) continue;
    bytes += event.bytes;
  }
  return bytes;
}

TEST(InputsOnNvme, LieThere_AndTravelPastThePageCache) {
  const offload::SwapFolder folder;
  const Moved moved = train_two_steps(inputs_on_nvme(folder, 1, 2), PassOrder::horizontal, 2);
  // Four blocks; the last two inputs stay in the buffers.
  EXPECT_EQ(moved.memory.at(Tier::nvme, Label::activations).peak, 4 * kInput);
  EXPECT_EQ(moved.memory.at(Tier::pinned_host, Label::staging).peak, 2 * kInput);
  EXPECT_EQ(moved.memory.at(Tier::pinned_host).peak, 2 * kInput);
  offload::SwapTraffic expected;
  expected.bytes_read = expected.bytes_written = 2 * 2 * kInput;  // two for each micro-batch
  EXPECT_EQ(moved.first, expected);
  EXPECT_EQ(moved.second, expected);
  EXPECT_GT(moved.second.busy_ns, 0);
  EXPECT_EQ(bytes_on(moved, offload::kReadLane), 2 * expected.bytes_read);
  EXPECT_EQ(bytes_on(moved, offload::kWriteLane), 2 * expected.bytes_written);
  EXPECT_TRUE(folder.is_empty());
  if (!offload::open_unnamed(folder.path()).is_direct()) GTEST_SKIP() << "no O_DIRECT there";
  EXPECT_GE(moved.process_wrote, 2 * expected.bytes_written);
}

TEST(InputsOnNvme, OfAllMicroBatches_WaitTogether) {
  const offload::SwapFolder folder;
  const Moved moved = train_two_steps(inputs_on_nvme(folder, 1, 4), PassOrder::vertical, 3);
  EXPECT_EQ(moved.memory.at(Tier::nvme, Label::activations).peak, 3 * 4 * kInput);
  EXPECT_EQ(moved.memory.at(Tier::pinned_host).peak, 4 * kInput);
  // Two never move, and the last that was written is still there.
  EXPECT_EQ(moved.second.bytes_written, 10 * kInput);
  EXPECT_EQ(moved.second.bytes_read, 9 * kInput);
  EXPECT_EQ(moved.first, moved.second);
}

// Less is on the device than where inputs are kept, and no more than where they wait in host
// memory.
TEST(InputsOnNvme, LeaveTheDevice) {
  const offload::SwapFolder folder;
  const auto device = [](const RecomputeConfig& recompute) {
    return train_two_steps(recompute, PassOrder::horizontal, 1)
        .memory.at(Tier::device, Label::activations)
        .peak;
  };
  const int64_t on_nvme = device(inputs_on_nvme(folder, 1, 2));
  EXPECT_LT(on_nvme, device({.every_blocks = 1}));
  EXPECT_EQ(on_nvme, device({.every_blocks = 1, .cpu_checkpointing = true}));
}

// Sequences of another length: the same buffers and space, and the bytes that they have.
TEST(InputsOnNvme, OfAnotherSize_TakeTheRoomOfThoseBefore) {
  const offload::SwapFolder folder;
  const auto losses = [&](const RecomputeConfig& recompute) {
    std::vector<double> losses;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config;
      config.batch.micro_batch = kSequences;
      config.recompute = recompute;
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      for (const int64_t tokens : {16, 5, 16}) {
        engine.backward(engine.forward(make_batch(tokens, kSequences, tokens)));
        losses.push_back(engine.step().loss);
      }
      if (recompute.offload.device == OffloadDevice::none) return;
      const MemoryReport report = world.context().allocator().report();
      EXPECT_EQ(report.at(Tier::nvme).live, 4 * kInput);
      EXPECT_EQ(report.at(Tier::nvme).peak, 4 * kInput);
      EXPECT_GE(engine.usage().swap.bytes_read, 2 * 2 * kInput + 2 * 4096);
    });
    return losses;
  };
  EXPECT_EQ(losses(inputs_on_nvme(folder, 1, 2)), losses({}));
}

struct Trained {
  std::vector<double> losses;
  MemoryReport memory;
};

// Steps of three micro-batches side by side, of these many tokens each; at most kTokens.
Trained train_side_by_side(const RecomputeConfig& recompute,
                           const std::vector<std::array<int64_t, 3>>& steps) {
  Trained trained;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch = {.micro_batch = kSequences, .accumulation = 3, .sequence = kTokens};
    config.pass_order = PassOrder::vertical;
    config.recompute = recompute;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    for (const auto& lengths : steps) {
      std::vector<nn::Batch> batches;
      for (const int64_t tokens : lengths) {
        batches.push_back(make_batch(tokens, kSequences, tokens));
      }
      engine.run_passes(batches);
      trained.losses.push_back(engine.step().loss);
    }
    trained.memory = world.context().allocator().report();
  });
  return trained;
}

// Micro-batches side by side hold inputs of all their sizes at once.
TEST(SavedInputs, OfUnequalSequencesSideBySide_TakeTheRoomOfEqualOnes) {
  const offload::SwapFolder folder;
  const std::vector<std::array<int64_t, 3>> equal(3, {kTokens, kTokens, kTokens});
  const std::vector<std::array<int64_t, 3>> unequal{{5, kTokens, 9}, {7, 5, kTokens}, {16, 9, 5}};
  const std::vector<double> expected = train_side_by_side({}, unequal).losses;
  for (const RecomputeConfig& recompute :
       {inputs_on_nvme(folder, 1, 2),
        RecomputeConfig{.every_blocks = 1, .contiguous_memory_optimization = true},
        RecomputeConfig{.every_blocks = 1,
        .cpu_checkpointing = true,
        .contiguous_memory_optimization = true}}) {
    const Trained planned = train_side_by_side(recompute, equal);
    const Trained trained = train_side_by_side(recompute, unequal);
    EXPECT_EQ(trained.losses, expected);
    for (const Tier tier : {Tier::pinned_host, Tier::nvme}) {
      EXPECT_EQ(trained.memory.at(tier).peak, planned.memory.at(tier).peak)
          << name_of(tier) << ", inputs on " << name_of(recompute.inputs_on());
    }
    // Of shorter sequences there is less beside the saved inputs.
    EXPECT_LE(trained.memory.at(Tier::device).peak, planned.memory.at(Tier::device).peak)
        << "inputs on " << name_of(recompute.inputs_on());
  }
  EXPECT_TRUE(folder.is_empty());
}

// Also where the shortest come first, and the configuration does not say how long the longest are.
TEST(InputsOnNvme, OfGrowingSize_TakeTheRoomOfTheLargest) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch.micro_batch = kSequences;
    config.recompute = inputs_on_nvme(folder, 1, 2);
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    for (const int64_t tokens : {5, 16, 9}) {
      engine.backward(engine.forward(make_batch(tokens, kSequences, tokens)));
      engine.step();
    }
    EXPECT_EQ(world.context().allocator().report().at(Tier::nvme).peak, 4 * kInput);
  });
}

TEST(InputsOnNvme, WrongBytes_AreAnErrorOfBackward) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch.micro_batch = kSequences;
    config.recompute = inputs_on_nvme(folder, 1, 1);
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    const Loss loss = engine.forward(make_batch(0, kSequences, kTokens));
    const offload::DamagedPage damaged(folder, 1);  // of the first input
    EXPECT_THROW(engine.backward(loss), IoError);
  });
  EXPECT_TRUE(folder.is_empty());
}

TEST(InputsOnNvme, ALossThatOutlivesTheEngine_HoldsNothingOfThem) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    std::optional<Loss> loss;
    {
      EngineConfig config;
      config.batch.micro_batch = kSequences;
      config.recompute = inputs_on_nvme(folder, 1, 1);
      Engine engine(model, config, world);
      loss = engine.forward(make_batch(0, kSequences, kTokens));
    }
    EXPECT_EQ(world.context().allocator().report().at(Tier::nvme).live, 0);
    EXPECT_EQ(world.context().allocator().report().at(Tier::pinned_host).live, 0);
  });
}

TEST(InputsOnNvme, WithoutADirectory_AreRefused) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineConfig config;
    config.recompute = inputs_on_nvme(folder, 1, 1);
    config.recompute.offload.nvme_path += "/none";
    EXPECT_THROW(Engine(model, config, world), IoError);
    config.recompute.offload.nvme_path.clear();
    EXPECT_THROW(Engine(model, config, world), ConfigError);
    config.recompute = inputs_on_nvme(folder, 1, 1);
    config.recompute.cpu_checkpointing = true;
    EXPECT_THROW(Engine(model, config, world), ConfigError);
  });
}

}  // namespace saved_inputs_test
}  // namespace zinc::zero
