// The source of a machine's figures, and the commands' use of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "files/json/parser.h"
#include "plan/hardware.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace hardware_test {

// A thousand times as fast as any CPU, with a launch of 0.1 s: the step is its kernels' number.
std::string slow_launches(double launch_seconds) {
  plan::Hardware hardware{.name = "slow to launch",
                          .source = "specification",
                          .threads = 1,
                          .read_bytes_per_second = 1e15,
                          .write_bytes_per_second = 1e15,
                          .gemm = {.f32 = 1e18},
                          .attention = {.f32 = 1e18},
                          .other_flops = 1e18,
                          .launch_seconds = launch_seconds};
  hardware.same_host.all_gather = {.alpha_seconds = 1e-6, .bytes_per_second = 1e9};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  hardware.host =
      plan::HostRates{.to_device_bytes_per_second = 2e9, .to_host_bytes_per_second = 3e9};
  return plan::json_of(hardware);
}

std::string line_with(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return "";
  return text.substr(at, text.find('\n', at) - at);
}

double number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << words << " in:\n" << text;
  return at == std::string::npos ? 0.0 : std::stod(text.substr(at + words.size()));
}

TEST(Hardware, Train_PrintsThePredictedTimeBesideTheMeasuredOne) {
  const TrainingFolder folder;
  folder.write("hw.json", slow_launches(0.5));
  const Ended ended = run_zinc(folder.train({"--steps", "3", "--hardware", folder / "hw.json"}));
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  const std::string line = line_with(ended.out, "step time: ");
  const double measured = number_after(line, "measured ");
  const double predicted = number_after(line, "predicted ");
  // The mean of the steps behind the first, in milliseconds; printed with one place.
  const std::string steps = files::read_whole_file(folder.out() + "/metrics.jsonl");
  const std::string second = line_with(steps, "\"step\":2,");
  const std::string third = line_with(steps, "\"step\":3,");
  const double mean =
      (number_after(second, "\"seconds\":") + number_after(third, "\"seconds\":")) / 2;
  EXPECT_NEAR(measured, 1e3 * mean, 0.051 + 1e-3 * measured);
  // The same number of kernels at a tenth of the launch.
  folder.write("faster.json", slow_launches(0.05));
  const auto dry = [&](const std::string& file) {
    const Ended plan = run_zinc(folder.train({"--dry-run", "--hardware", folder / file}));
    EXPECT_EQ(plan.exit_code, 0) << to_string(plan);
    return number_after(plan.out, "\nstep ");
  };
  EXPECT_NEAR(dry("hw.json"), predicted, 1e-3 * predicted);
  EXPECT_NEAR(dry("faster.json"), predicted / 10, 1e-3 * predicted);
  EXPECT_GT(predicted, 20 * 500.0);  // a step of GPT-2 has more than twenty kernels
}

TEST(Hardware, FileThatIsBroken_EndsTheRunBeforeItBegins) {
  const TrainingFolder folder;
  folder.write("hw.json", "{\"format\": \"zinc hardware 1\"}");
  const Ended ended = run_zinc(folder.train({"--hardware", folder / "hw.json"}));
  EXPECT_EQ(ended.exit_code, 65) << to_string(ended);
  EXPECT_NE(ended.err.find("\"name\" is missing"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("zinc bench ceilings"), std::string::npos) << ended.err;
  EXPECT_FALSE(std::filesystem::exists(folder.out()));
}

TEST(Hardware, Plan_ReadsTheStoredExample) {
  const TrainingFolder folder;
  const std::string example = "examples/hardware/h200-node.json";
  const auto plan = [&](const std::string& world) {
    return run_zinc({"plan", "--config", folder / "ds.json", "--model", folder / "model.json",
                     "--world", world, "--seq", "16", "--device", "cuda", "--hardware", example});
  };
  const Ended fits = plan("16");
  ASSERT_EQ(fits.exit_code, 0) << to_string(fits);
  EXPECT_NE(fits.out.find("by its specification"), std::string::npos) << fits.out;
  EXPECT_GT(number_after(fits.out, "all ranks"), 0.0);
}

TEST(Hardware, OfAnotherKindOfDevice_IsRefusedWhereItWasAskedFor) {
  const TrainingFolder folder;
  const Ended ended =
      run_zinc(folder.train({"--dry-run", "--hardware", "examples/hardware/h200-node.json"}));
  EXPECT_EQ(ended.exit_code, 78) << to_string(ended);
  EXPECT_NE(ended.err.find("is about the device 'cuda:0', the run about 'cpu'"), std::string::npos)
      << ended.err;
}

TEST(DryRun, OfAGpu_NeedsNoneAndDoesNotCompareItWithThisMachinesMemory) {
  const TrainingFolder folder;
  const Ended cpu = run_zinc(folder.train({"--dry-run"}));
  const Ended cuda = run_zinc(folder.train({"--dry-run", "--device", "cuda"}));
  ASSERT_EQ(cpu.exit_code, 0) << to_string(cpu);
  ASSERT_EQ(cuda.exit_code, 0) << to_string(cuda);
  EXPECT_NE(cpu.out.find("this machine has"), std::string::npos) << cpu.out;
  EXPECT_EQ(cuda.out.find("this machine has"), std::string::npos) << cuda.out;
}

TEST(Estimate, CountsOfWeights_MayBeWrittenShort) {
  const auto estimate = [](const std::string& params) {
    return run_zinc(
        {"plan", "--format", "deepspeed", "--params", params, "--largest-layer", "32M"});
  };
  const Ended digits = estimate("2851000000");
  ASSERT_EQ(digits.exit_code, 0) << to_string(digits);
  EXPECT_EQ(estimate("2.851B").out, digits.out);
  EXPECT_EQ(estimate("2.851e9").out, digits.out);
  EXPECT_EQ(estimate("8.2B").out, estimate("8200000000").out);
  for (const char* none : {"1.5", "1.0000000001", "1T", "B", "1e30"}) {
    EXPECT_EQ(estimate(none).exit_code, 64) << none;
  }
}

constexpr const char* kOffloaded = R"({"train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";

TEST(DryRun, OffloadOnAGpu_HasATimeWhereTheFileKnowsTheHost) {
  const TrainingFolder folder;
  folder.write("ds.json", kOffloaded);
  const std::string example = "examples/hardware/h200-node.json";
  const auto plan = [&](const std::string& file) {
    const Ended ended =
        run_zinc(folder.train({"--dry-run", "--device", "cuda", "--hardware", file}));
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    return ended.out;
  };
  const std::string known = plan(example);
  EXPECT_GT(number_after(known, "copies to the device"), 0.0);
  EXPECT_GT(number_after(known, "\nstep "), 0.0);
  EXPECT_NE(line_with(known, "offload_step: ").find(" ms a step where "), std::string::npos);
  plan::Hardware hardware = plan::read_hardware(example);
  hardware.host.reset();
  folder.write("unknown.json", plan::json_of(hardware));
  const std::string unknown = plan(folder / "unknown.json");
  EXPECT_NE(line_with(unknown, "no time: ").find("\"host\""), std::string::npos) << unknown;
  EXPECT_NE(line_with(unknown, "offload_step: ").find("host, because"), std::string::npos);
  EXPECT_EQ(unknown.find("time of a step"), std::string::npos) << unknown;
}

TEST(Hardware, TrainSaysWhoUpdatesAndWhatTravels) {
  const TrainingFolder folder;
  folder.write("ds.json", kOffloaded);
  folder.write("hw.json", slow_launches(1e-3));
  const auto run = [&](const std::vector<std::string>& more, const std::string& why,
                       const std::string& copies) {
    const Ended ended = run_zinc(folder.train(more));
    ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
    const std::string choice = line_with(ended.out, "offload_step: ");
    EXPECT_EQ(choice.substr(0, 19), "offload_step: host,") << ended.out;
    EXPECT_NE(choice.find(why), std::string::npos) << choice;
    EXPECT_NE(line_with(ended.out, "host memory per step and rank: ").find(copies),
              std::string::npos)
        << ended.out;
    EXPECT_NE(files::read_whole_file(folder.out() + "/config.resolved.json")
                  .find("\"offload_step\": \"host\""),
              std::string::npos);
  };
  run({}, "no hardware file", " back");
  run({"--hardware", folder / "hw.json", "--force"}, "where the device takes", " ms at 2.00 GB/s");
}

}  // namespace hardware_test
}  // namespace zinc::apps
