// Offload as a user meets it: `zinc train` with states on the host and on NVMe, and disks that
// cannot take them.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "core/exit_codes.h"
#include "offload/file.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace offload_test {

std::string config_with(const std::string& zero, const std::string& own = "") {
  return R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "steps_per_print": 1,
             "zero_optimization": {)" +
         zero + "}, \"zinc\": {" + own + "}}";
}

std::string inputs_in(const std::string& path) {
  return R"("recompute_every_blocks": 1,
            "activation_offload": {"device": "nvme", "buffer_count": 1, "nvme_path": ")" +
         path + R"("})";
}

std::string nvme_in(const std::string& path) {
  return R"("stage": 2, "sub_group_size": 4096, "offload_optimizer": {"device": "nvme",
            "pipeline_read": true, "pipeline_write": true, "nvme_path": ")" +
         path + R"("})";
}

std::string weights_of(const TrainingFolder& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.out())) {
    if (entry.path().extension() == ".safetensors") {
      return files::read_whole_file(entry.path().string());
    }
  }
  return {};
}

// The output has the predicted and the measured time of swapping, or neither.
void expect_swap_figures(const Ended& ended, const TrainingFolder& folder, bool swaps) {
  const auto says = [&](const std::string& text, const std::string& words) {
    EXPECT_EQ(text.find(words) != std::string::npos, swaps) << words << " in\n" << text;
  };
  says(ended.out, "swap per step and rank: ");
  says(ended.out, "GB/s (measured now in ");
  says(ended.out, " | swap ");
  says(files::read_whole_file(folder.out() + "/metrics.jsonl"), "\"stall_seconds\"");
}

TEST(Offload, TrainedWeightsAreTheSameFile_AndSwapIsTimed) {
  std::string reference;
  for (const std::string device : {"none", "cpu", "nvme", "gradients", "inputs"}) {
    const TrainingFolder folder;
    std::string two_blocks(kTinyGpt2);
    two_blocks.replace(two_blocks.find("\"n_layer\": 1"), 12, "\"n_layer\": 2");
    folder.write("model.json", two_blocks);
    const std::string swap = folder / "swap";
    std::filesystem::create_directory(swap);
    folder.write(
        "ds.json",
        config_with(device == "cpu" ? R"("stage": 1, "offload_optimizer": {"device": "cpu"})"
                    : device == "nvme" || device == "gradients" ? nvme_in(swap)
                                                                : R"("stage": 0)",
                    device == "inputs"      ? inputs_in(swap)
                    : device == "gradients" ? R"("gradient_offload": "nvme")"
                                            : ""));
    const Ended ended = run_zinc(folder.train());
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    EXPECT_TRUE(std::filesystem::is_empty(swap));
    expect_swap_figures(ended, folder, device != "none" && device != "cpu");
    const std::string weights = weights_of(folder);
    EXPECT_GT(weights.size(), 10'000u);
    if (reference.empty()) reference = weights;
    EXPECT_TRUE(weights == reference) << device;
  }
}

// The other run swaps in every step and is killed while this one trains.
TEST(Offload, TwoRunsShareADirectory_AndAKilledOneLeavesNothing) {
  const TrainingFolder folder;
  const std::string swap = folder / "swap";
  std::filesystem::create_directory(swap);
  folder.write("ds.json", config_with(nvme_in(swap)));
  const Ended alone = run_zinc(folder.train());
  ASSERT_EQ(alone.exit_code, kDone) << to_string(alone);
  const std::string weights = weights_of(folder);

  CommandProcess endless(folder.train({"--steps", "1000000", "--out", folder / "endless"}));
  ASSERT_TRUE(endless.wait_for_output("step "));
  EXPECT_TRUE(std::filesystem::is_empty(swap));
  const Ended beside = run_zinc(folder.train({"--force"}));
  EXPECT_EQ(beside.exit_code, kDone) << to_string(beside);
  EXPECT_TRUE(weights_of(folder) == weights);
  endless.send(SIGKILL);
  EXPECT_NE(endless.finish().exit_code, kDone);
  EXPECT_TRUE(std::filesystem::is_empty(swap));
}

TEST(Offload, ADirectoryThatIsNotThereIsAnIoError) {
  const TrainingFolder folder;
  folder.write("ds.json", config_with(nvme_in(folder / "none")));
  const Ended ended = run_zinc(folder.train());
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_NE(ended.err.find(folder / "none"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("nvme_path"), std::string::npos) << ended.err;
}

TEST(Offload, ADiskThatIsTooSmallIsAnIoErrorAtTheStart) {
  const TrainingFolder folder;
  const std::string swap = folder / "swap";
  std::filesystem::create_directory(swap);
  if (::mount("tmpfs", swap.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "may not mount";
  folder.write("ds.json", config_with(nvme_in(swap)));
  const Ended ended = run_zinc(folder.train());
  ::umount2(swap.c_str(), MNT_DETACH);
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_NE(ended.err.find("bytes of swap are needed"), std::string::npos) << ended.err;
}

TEST(Offload, AFileSystemWithoutODirectTrainsAndIsNamed) {
  const TrainingFolder folder;
  const std::string swap = folder / "swap";
  std::filesystem::create_directory(swap);
  if (::mount("ramfs", swap.c_str(), "ramfs", 0, nullptr) != 0) GTEST_SKIP() << "may not mount";
  folder.write("ds.json", config_with(R"("stage": 3, "offload_param": {"device": "nvme",
      "max_in_cpu": 0, "nvme_path": ")" +
                                      swap + R"("})"));
  const bool is_direct = offload::open_unnamed(swap).is_direct();
  const Ended ended = run_zinc(folder.train());
  ::umount2(swap.c_str(), MNT_DETACH);
  EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
  const bool is_named = ended.out.find(swap + " has no O_DIRECT") != std::string::npos;
  EXPECT_EQ(is_named, !is_direct) << to_string(ended);
}

TEST(Offload, NvmeWithoutAPathIsAConfigurationError) {
  const TrainingFolder folder;
  folder.write("ds.json", config_with(R"("stage": 1, "offload_optimizer": {"device": "nvme"})"));
  const Ended ended = run_zinc(folder.train());
  EXPECT_EQ(ended.exit_code, kConfiguration) << to_string(ended);
  EXPECT_NE(ended.err.find("nvme_path"), std::string::npos) << ended.err;
}

}  // namespace offload_test
}  // namespace zinc::apps
