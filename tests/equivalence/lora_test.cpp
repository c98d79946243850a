// The same bits on every stage, tier and with recomputation where adapters alone are trained.
#include <gtest/gtest.h>

#include <string>

#include "tests/equivalence/training_run.h"
#include "tests/offload/swap_folder.h"

namespace zinc::zero {
namespace lora_test {

using namespace training;

class Lora : public testing::TestWithParam<Case> {};

TEST_P(Lora, HasTheSameBitsWhateverHoldsTheMemory) {
  const Case c = GetParam();
  constexpr int kSteps = 3;
  const offload::SwapFolder folder;
  EngineConfig config = config_of(c);
  config.zero.stage = 0;
  const Outcome reference = run(c, config, kSteps);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_NE(reference.losses[0], reference.losses[2]);
  for (const int stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    const auto expect_same = [&](const std::string& what) {
      EXPECT_TRUE(run(c, config, kSteps) == reference) << "stage " << stage << ", " << what;
    };
    config.recompute.every_blocks = stage == 0 ? 2 : 0;
    expect_same("on the device");
    if (stage == 0) continue;
    config.recompute.every_blocks = stage % 2;
    config.zero.offload_optimizer = {.device = OffloadDevice::cpu};
    if (stage == 3) config.zero.offload_param = {.device = OffloadDevice::cpu};
    expect_same("in host memory");
    config.zero.offload_optimizer = {.device = OffloadDevice::nvme, .nvme_path = folder.path()};
    if (stage == 3) {
      config.zero.offload_param = {.device = OffloadDevice::nvme, .nvme_path = folder.path()};
    }
    expect_same("on a disk");
    config.zero.offload_optimizer = {};
    config.zero.offload_param = {};
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Lora,
    testing::Values(Case{.world = 2, .lora = true},
                    Case{.world = 2, .family = Family::t5, .lora = true},
                    Case{.world = 2, .lora = true, .dora = true},
                    Case{.world = 2, .lora = true, .lora_target = "wte"},
                    Case{.world = 3, .dtype = DType::bf16, .family = Family::llama, .lora = true},
                    Case{.world = 2, .lora = true, .quantize = BlockFormat::nf4},
                    Case{.world = 3,
                         .dtype = DType::bf16,
                         .family = Family::llama,
                         .lora = true,
                         .quantize = BlockFormat::nf4},
                    Case{.world = 2,
                         .dtype = DType::bf16,
                         .family = Family::t5,
                         .lora = true,
                         .quantize = BlockFormat::int8}),
    [](const auto& info) {
      const Case& c = info.param;
      return std::string(str(test::name_of(c.family), "_", name_of(c.dtype), c.dora ? "_dora" : "",
                             c.lora_target == "wte" ? "_embedding" : "", c.quantize ? "_" : "",
                             c.quantize ? name_of(*c.quantize) : ""));
    });

// Frozen weights keep their values, to the last bit.
TEST(Lora, LeavesTheBaseAlone) {
  const Case c{.world = 2, .dtype = DType::bf16, .lora = true};
  EngineConfig config = config_of(c);
  config.zero.stage = 2;
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto model = make_model(c);
    Engine engine(*model, config, world);
    const std::vector<float> before =
        engine.parameter("transformer.h.1.attn.c_attn.weight").to_vector<float>();
    const auto adapter = [&] {
      return engine.parameter("transformer.h.1.attn.c_attn.lora_B.weight").to_vector<float>();
    };
    EXPECT_EQ(adapter(), std::vector<float>(72 * 3, 0.0f));
    for (int64_t step = 0; step < 2; ++step) {
      engine.backward(engine.forward(test::make_batch(2 * step + world.rank())));
      engine.step();
    }
    EXPECT_EQ(engine.parameter("transformer.h.1.attn.c_attn.weight").to_vector<float>(), before);
    EXPECT_NE(adapter(), std::vector<float>(72 * 3, 0.0f));
  });
}

}  // namespace lora_test
}  // namespace zinc::zero
