// The same bits where a share of the optimizer's states is in host memory and the rest on the
// device, against stage 0 with everything on the device.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace split_states_test {

using namespace test;

constexpr auto kNone = OffloadDevice::none;
constexpr auto kHost = OffloadDevice::cpu;
constexpr auto kNvme = OffloadDevice::nvme;
constexpr auto kHorizontal = PassOrder::horizontal;
constexpr auto kVertical = PassOrder::vertical;
constexpr auto kStreamed = OffloadStep::device;

struct Way {
  int stage = 1;
  double ratio = 0.5;
  OffloadDevice parameters = kNone;
  PassOrder order = kHorizontal;
  OffloadStep step = OffloadStep::host;
};

struct SplitCase {
  Case run;
  std::vector<Way> ways;
};

class SplitStates : public testing::TestWithParam<SplitCase> {};

TEST_P(SplitStates, ChangeNoBit) {
  const Case& c = GetParam().run;
  const int steps = c.dtype == DType::f16 ? 4 : 2;  // f16: the first ones are skipped
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  ASSERT_GT(config.gradient.clipping, 0.0);
  const Outcome reference = run(c, config, steps);
  ASSERT_TRUE(reference == reference);  // no NaN
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(steps));
  const offload::SwapFolder folder;
  uint64_t seed = 0;
  for (const Way& way : GetParam().ways) {
    EngineConfig split = placed(config, kHost, way.parameters, folder);
    split.zero.stage = way.stage;
    split.gradient.reduce_schedule = config.gradient.reduce_schedule;
    split.zero.offload_optimizer.ratio = way.ratio;
    split.pass_order = way.order;
    split.offload_step = way.step;
    split.zero.overlap_comm = true;
    const auto execution = ++seed % 2 == 0 ? ContextOptions::Execution::concurrent
                                           : ContextOptions::Execution::shuffled;
    EXPECT_TRUE(run(c, split, steps, {.execution = execution, .shuffle_seed = seed}) == reference)
        << "stage " << way.stage << ", ratio " << way.ratio << ", parameters "
        << name_of(way.parameters) << ", " << name_of(way.order) << ", update by "
        << name_of(way.step) << ", seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, SplitStates,
    testing::Values(
        SplitCase{{1}, {{1, 0.9}, {2, 0.4, kNone, kHorizontal, kStreamed}, {3, 0.3, kNvme}}},
        SplitCase{{2, 1, DType::bf16},
                  {{1, 0.4}, {3, 0.5, kHost}, {3, 0.4, kNvme, kHorizontal, kStreamed}, {2, 0.0}}},
        SplitCase{{3, 2}, {{1, 0.4}, {1, 0.3, kNone, kHorizontal, kStreamed}}},
        SplitCase{{2, 2, DType::f32, ReduceSchedule::micro_step},
                  {{2, 0.4, kNone, kVertical}, {3, 0.4, kNvme, kVertical}, {1, 0.25}}},
        SplitCase{{2, 2, DType::bf16, ReduceSchedule::micro_step},
                  {{3, 0.9, kNone, kVertical, kStreamed}, {3, 0.4, kNvme, kVertical}, {2, 0.3}}},
        SplitCase{{2, 1, DType::f16}, {{2, 0.4}, {3, 0.3, kHost}}},
        SplitCase{{2, 3, DType::f32, ReduceSchedule::micro_step, Determinism::world},
                  {{2, 0.4}, {3, 0.3, kHost}}}),
    [](const auto& info) {
      const Case& c = info.param.run;
      return str("World", c.world, "Accumulation", c.accumulation, name_of(c.dtype),
                 c.determinism == Determinism::world ? "World" : "");
    });

// A tile of parameters that the cut runs through is updated in two parts. Other tiles pass through
// the buffers between them.
TEST(SplitStates, ChangeNoBitWithOneBufferForParameters) {
  const Case c{.world = 2, .accumulation = 3, .schedule = ReduceSchedule::micro_step};
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, 3);
  const offload::SwapFolder folder;
  for (const OffloadStep step : {OffloadStep::host, OffloadStep::device}) {
    for (const bool beside : {false, true}) {
      for (const double ratio : {0.2, 0.4, 0.6, 0.8}) {
        for (const int64_t buffer : {2048, 9000, 100'000'000}) {
          EngineConfig split = placed(config, kHost, kNvme, folder);
          split.gradient.reduce_schedule = config.gradient.reduce_schedule;
          split.zero.offload_optimizer.ratio = ratio;
          split.zero.offload_param.buffer_count = 1;
          split.zero.offload_param.buffer_size = buffer;
          split.offload_step = step;
          if (step == OffloadStep::host) split.overlap_update = beside;
          EXPECT_TRUE(run(c, split, 3) == reference)
              << name_of(step) << ", beside " << beside << ", ratio " << ratio << ", " << buffer;
        }
      }
    }
  }
}

// The values that a client reads, edits and writes to files, with states that are cut within a
// parameter.
TEST(SplitStates, ValuesReadAndSetBetweenStepsAreThoseOfTheDevice) {
  const auto values = [](int stage, DType dtype, OffloadDevice device, double ratio) {
    std::vector<float> seen;
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = config_of({2, 1, dtype});
      config.zero.stage = stage;
      config.zero.sub_group_size = 2048;
      config.zero.offload_optimizer = {.device = device, .nvme_path = {}, .ratio = ratio};
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      std::vector<std::string> names;
      for (const auto& [name, parameter] : model.named_parameters()) names.push_back(name);
      const auto look = [&] {
        std::vector<float> own;
        engine.read_own(Engine::Own::weights, [&](const OwnPiece& piece) {
          const auto* data = static_cast<const float*>(piece.values.data());
          own.insert(own.end(), data, data + piece.values.numel());
        });
        const std::vector<float> all = weights_and_states_of(engine);
        if (world.rank() == 0) seen.insert(seen.end(), all.begin(), all.end());
        if (world.rank() == 0) seen.insert(seen.end(), own.begin(), own.end());
      };
      engine.backward(engine.forward(make_batch(world.rank())));
      engine.step();
      look();
      engine.edit(names, [](Engine::EditedParameters& edited) {
        for (auto& [name, tensor] : edited) {
          auto numbers = tensor.to_vector<float>();
          for (float& number : numbers) number *= 1.25f;
          tensor = Tensor::from<float>(std::span<const float>(numbers), tensor.shape(), DType::f32);
        }
      });
      look();
    });
    return seen;
  };
  for (const auto& [stage, dtype] : {std::pair{1, DType::f32}, std::pair{3, DType::bf16}}) {
    const std::vector<float> reference = values(stage, dtype, kNone, 1.0);
    EXPECT_GT(reference.size(), 100'000u);
    EXPECT_TRUE(values(stage, dtype, kHost, 0.4) == reference) << stage << name_of(dtype);
  }
}

// Equal bits mean little if nothing was split.
TEST(SplitStates, OfOneRankAreInBothTiersByTheirShare) {
  const auto report = [](OffloadDevice device, double ratio) {
    MemoryReport report;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      EngineConfig config = config_of({1, 1, DType::bf16});
      config.zero.stage = 2;
      config.zero.offload_optimizer = {.device = device, .nvme_path = {}, .ratio = ratio};
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      engine.backward(engine.forward(make_batch(0)));
      world.context().synchronize();
      report = world.context().allocator().report();
      engine.step();
      const MemoryReport after = world.context().allocator().report();
      EXPECT_EQ(after.at(Tier::device, Label::gradients).live, 0);
      EXPECT_EQ(after.at(Tier::pinned_host, Label::gradients).live, 0);
    });
    return report;
  };
  const auto live = [](const MemoryReport& of, Tier tier, Label label) {
    return of.at(tier, label).live;
  };
  const MemoryReport resident = report(kNone, 1.0);
  const int64_t states = live(resident, Tier::device, Label::optimizer);
  const int64_t gradients = live(resident, Tier::device, Label::gradients);
  int64_t before = 0;
  for (const double ratio : {0.0, 0.3, 0.5, 1.0}) {
    const MemoryReport split = report(kHost, ratio);
    const int64_t host = live(split, Tier::pinned_host, Label::optimizer);
    EXPECT_EQ(host + live(split, Tier::device, Label::optimizer), states);
    EXPECT_GE(static_cast<double>(host), ratio * static_cast<double>(states));
    // The excess is less than one chunk of master weights and two moments.
    EXPECT_LT(static_cast<double>(host), ratio * static_cast<double>(states) + 12.0 * kNormChunk);
    EXPECT_EQ(live(split, Tier::pinned_host, Label::gradients), host / 12 * 2);
    if (ratio == 0.0) {
      EXPECT_EQ(live(split, Tier::device, Label::gradients), gradients);
    } else {
      EXPECT_LT(live(split, Tier::device, Label::gradients), before);
    }
    before = live(split, Tier::device, Label::gradients);
  }
}

}  // namespace split_states_test
}  // namespace zinc::zero
