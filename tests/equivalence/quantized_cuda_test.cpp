// Adapters over a base in 4 or 8 bits on a GPU: the same bits on every stage and tier, and with
// passes as CUDA graphs. On the emulator under several schedules of its streams, see
// gpu_cuda_test.cpp.
#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/equivalence/training_run.h"
#include "tests/offload/swap_folder.h"

namespace zinc::zero {
namespace quantized_cuda_test {

using training::Case;
using training::Outcome;

Outcome run(const Case& c, const EngineConfig& config) {
  constexpr int64_t kSteps = 3;
  Outcome outcome;
  comm::ConnectOptions connect{.device = {.kind = DeviceKind::cuda}, .seed = 5, .num_threads = 1};
  connect.deadline = std::chrono::minutes(1);  // a hang is an error
  connect.device_collectives = comm::DeviceCollectives::staged;
  comm::run_local_ranks(c.world, connect, [&](comm::World& world) {
    Outcome mine;
    const auto model = training::make_model(c);
    Engine engine(*model, config, world);
    for (int64_t step = 0; step < kSteps; ++step) {
      const nn::Batch batch = test::make_batch(c.family, step * world.size() + world.rank());
      engine.run_passes({&batch, 1});
      const StepResult result = engine.step();
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.gradient_norm);
    }
    mine.weights = test::weights_of(engine);
    if (world.is_main()) outcome = std::move(mine);
  });
  return outcome;
}

class GpuQuantized : public testing::TestWithParam<Case> {
 protected:
  ~GpuQuantized() override { choose(kSchedules[0]); }
};

TEST_P(GpuQuantized, HasTheSameBitsWhateverHoldsTheMemory) {
  const Case& c = GetParam();
  const offload::SwapFolder folder;
  EngineConfig config = training::config_of(c);
  config.zero.stage = 0;
  choose(kSchedules[0]);
  const Outcome reference = run(c, config);
  EXPECT_NE(reference.losses[0], reference.losses[2]);
  size_t next = 0;
  const auto expect_same = [&](const std::string& what) {
    const auto& schedule = kSchedules[next++ % std::size(kSchedules)];
    choose(schedule);
    EXPECT_TRUE(run(c, config) == reference) << what << ", schedule " << schedule.name;
  };
  for (const int stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    config.zero.overlap_comm = true;
    expect_same(str("stage ", stage));
    // On stage 3 the ranks would gather within a graph, through the host.
    config.cuda_graph = stage < 3 || c.world == 1;
    if (config.cuda_graph) expect_same(str("stage ", stage, ", graphs"));
    config.cuda_graph = false;
  }
  for (const OffloadDevice tier : {OffloadDevice::cpu, OffloadDevice::nvme}) {
    config.zero.offload_param = {.device = tier,
                                 .nvme_path = folder.path(),
                                 .buffer_count = 2,
                                 .buffer_size = 4096,
                                 .max_in_cpu = 0};
    expect_same(str("base on ", name_of(tier)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GpuQuantized,
    testing::Values(Case{.world = 1, .lora = true, .quantize = BlockFormat::int8},
                    Case{.world = 2,
                         .dtype = DType::bf16,
                         .family = training::Family::llama,
                         .lora = true,
                         .quantize = BlockFormat::nf4}),
    [](const auto& info) {
      return str("World", info.param.world, "_", name_of(*info.param.quantize));
    });

}  // namespace quantized_cuda_test
}  // namespace zinc::zero
