#include "bench/swap_bench.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "comm/local/local.h"
#include "tests/offload/swap_folder.h"

namespace zinc::bench {
namespace {

TEST(SwapBench, RunsAgreeAndVerticalMovesParametersOnce) {
  const offload::SwapFolder folder;
  const offload::SwapFolder models;
  const std::string model = models.path() + "/config.json";
  std::ofstream(model) << R"({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64,
      "n_embd": 64, "n_layer": 3, "n_head": 2})";
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    int steps = 0;
    const SwapBenchResult result = run_swap_bench(world,
                                                  {.directory = folder.path(),
                                                   .preset = model,
                                                   .seq = 16,
                                                   .accumulation = 4,
                                                   .steps = 1,
                                                   .probe_bytes = 2 << 20},
                                                  [&](const std::string&, double seconds) {
                                                    ++steps;
                                                    EXPECT_GT(seconds, 0.0);
                                                  });
    ASSERT_EQ(result.runs.size(), 6u);
    EXPECT_EQ(steps, 6);
    for (const SwapRun& run : result.runs) {
      if (run.name == "clipped") continue;
      EXPECT_EQ(run.loss, result.runs.front().loss) << run.name;
    }
    EXPECT_EQ(result.at("memory").passes_bytes + result.at("memory").update_bytes, 0);
    const SwapRun& horizontal = result.at("horizontal");
    const SwapRun& vertical = result.at("vertical");
    EXPECT_GT(horizontal.passes_bytes + horizontal.update_bytes,
              vertical.passes_bytes + vertical.update_bytes);
    const SwapRun& clipped = result.at("clipped");
    EXPECT_EQ(clipped.passes_bytes + clipped.update_bytes,
              vertical.passes_bytes + vertical.update_bytes);
    EXPECT_LT(clipped.passes_bytes, vertical.passes_bytes);
    EXPECT_GT(result.mixed_bytes_per_second, 0.0);
    EXPECT_NE(describe(result).find("horizontal / vertical"), std::string::npos);
  });
  EXPECT_TRUE(folder.is_empty());
}

}  // namespace
}  // namespace zinc::bench
