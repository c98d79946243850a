#include "bench/swap_bench.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/swap_folder.h"

namespace zinc::bench {
namespace swap_bench_test {

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
    ASSERT_EQ(result.runs.size(), 7u);
    EXPECT_EQ(steps, 7);
    for (const SwapRun& run : result.runs) {
      if (run.name == "clipped" || run.name == "late") continue;
      EXPECT_EQ(run.loss, result.runs.front().loss) << run.name;
    }
    const auto bytes = [&](const char* name) {
      const SwapRun* run = result.find(name);
      return run->passes_bytes + run->update_bytes;
    };
    EXPECT_EQ(bytes("memory"), 0);
    EXPECT_GT(bytes("horizontal"), bytes("vertical"));
    EXPECT_EQ(bytes("clipped"), bytes("vertical"));
    EXPECT_LE(result.find("clipped")->passes_bytes, result.find("vertical")->passes_bytes);
    EXPECT_GT(bytes("late"), 0);
    EXPECT_GT(result.late_gain().value(), 0.0);
    EXPECT_EQ(result.find("memory")->busy_seconds.at(0), 0.0);
    EXPECT_GT(result.find("vertical")->busy_seconds.at(0), 0.0);
    EXPECT_GT(result.mixed_bytes_per_second.at(0), 0.0);
    EXPECT_GT(result.vertical_gain().value(), 0.0);
    EXPECT_GT(result.update_overhead().value(), 0.0);
    EXPECT_GT(result.step_overhead().value(), 0.0);
    EXPECT_NE(describe(result).find("horizontal / vertical"), std::string::npos);
  });
  EXPECT_TRUE(folder.is_empty());
}

TEST(SwapBench, ALimitLeavesOneTimedRound_AndRunsCanBeChosen) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    SwapBenchOptions options{.directory = folder.path(),
                             .preset = "tiny",
                             .seq = 4,
                             .accumulation = 2,
                             .limit_seconds = 0.0,
                             .runs = {"memory", "vertical"},
                             .probe_bytes = 1 << 20};
    const SwapBenchResult result = run_swap_bench(world, options, {});
    EXPECT_EQ(result.find("vertical")->step_seconds.size(), 1u);
    EXPECT_EQ(result.find("horizontal"), nullptr);
    EXPECT_FALSE(result.vertical_gain().has_value());
    EXPECT_FALSE(result.crc_cost().has_value());
    options.runs = {"diagonal"};
    EXPECT_THROW(run_swap_bench(world, options, {}), InvalidArgument);
  });
}

}  // namespace swap_bench_test
}  // namespace zinc::bench
