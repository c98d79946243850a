// `zinc plan --fit`: a file that trains as it was written, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace fit_command_test {

using testing::HasSubstr;

std::vector<std::string> fit(const TrainingFolder& folder, std::vector<std::string> more) {
  std::vector<std::string> words{"plan",  "--fit", "--model",    folder / "model.json",
                                 "--seq", "16",    "--hardware", folder / "hw.json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

constexpr const char* kHardware = R"({"format": "zinc hardware 1", "name": "round",
  "source": "specification", "device": "cpu", "threads": 1, "read_bytes_per_second": 1e10,
  "write_bytes_per_second": 1e10, "launch_seconds": 1e-6,
  "flops_per_second": {"gemm": {"f32": 1e11}, "attention": {"f32": 1e11}, "other": 1e10},
  "collectives": {"same_host": {
    "all_gather": {"alpha_seconds": 1e-5, "bytes_per_second": 1e9},
    "reduce_scatter": {"alpha_seconds": 1e-5, "bytes_per_second": 1e9}}}})";

TEST(FitCommand, WritesAFileThatTrainsUnchanged) {
  const TrainingFolder folder;
  folder.write("hw.json", kHardware);
  const Ended found = run_zinc(fit(folder, {"--global-batch", "4", "--device-memory", "64MiB",
                                            "--write", folder / "fitted.json"}));
  ASSERT_EQ(found.exit_code, 0) << to_string(found);
  EXPECT_THAT(found.out, HasSubstr("1. stage "));
  EXPECT_THAT(found.out, HasSubstr("binds: device "));
  const Ended trained = run_zinc(folder.train({"--config", folder / "fitted.json"}));
  EXPECT_EQ(trained.exit_code, 0) << to_string(trained);
}

TEST(FitCommand, JsonHasTheAnswersAndTheKeyThatIsExplained) {
  const TrainingFolder folder;
  folder.write("hw.json", kHardware);
  const Ended found = run_zinc(fit(
      folder, {"--global-batch", "4", "--device-memory", "64MiB", "--explain", "stage", "--json"}));
  ASSERT_EQ(found.exit_code, 0) << to_string(found);
  const files::json::Value json = files::json::parse(found.out, "stdout");
  EXPECT_GE(json.at("best").size(), 1u);
  EXPECT_GT(json.at("best").at(size_t{0}).at("step_seconds").as_double(), 0.0);
  EXPECT_EQ(json.at("best").at(size_t{0}).at("config").at("train_batch_size").as_int64(), 4);
  EXPECT_EQ(json.at("explained").at("key").as_string(), "zero_optimization.stage");
  EXPECT_EQ(json.at("limits_bytes").at("device").as_int64(), 64 << 20);
}

TEST(FitCommand, NothingFits_EndsWithItsOwnCodeAndWritesNothing) {
  const TrainingFolder folder;
  folder.write("hw.json", kHardware);
  const Ended found = run_zinc(fit(folder, {"--global-batch", "4", "--device-memory", "1KiB",
                                            "--write", folder / "fitted.json"}));
  EXPECT_EQ(found.exit_code, 71) << to_string(found);
  EXPECT_THAT(found.out, HasSubstr("nothing fits"));
  EXPECT_THAT(found.out, HasSubstr("would have to be"));
  EXPECT_FALSE(std::filesystem::exists(folder / "fitted.json"));
}

// Runs on a machine without a GPU and without a hardware file: candidates are compared by bytes,
// for a named device.
TEST(FitCommand, WithoutADeviceToAsk_PlansForANamedOne) {
  const TrainingFolder folder;
  const Ended found = run_zinc({"plan", "--fit", "--model", folder / "model.json", "--device",
                                "cuda", "--global-batch", "4"});
  if (found.err.find("no device is here") == std::string::npos && found.exit_code == kDone) {
    GTEST_SKIP() << "a GPU is here";
  }
  EXPECT_EQ(found.exit_code, kDone) << to_string(found);
  EXPECT_THAT(found.err, HasSubstr("each rank has a GPU of 80 GiB; --device-memory says another"));
}

TEST(FitCommand, BadInput_IsNamed) {
  const TrainingFolder folder;
  folder.write("hw.json", kHardware);
  const auto refused = [&](std::vector<std::string> more, int code, const char* words) {
    const Ended ended = run_zinc(fit(folder, std::move(more)));
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(words));
  };
  refused({"--global-batch", "4", "--device-memory", "64MoB"}, 78,
          "--device-memory must be a size as in 141GiB");
  refused({"--global-batch", "4", "--device-memory", "0"}, 78, "--device-memory must be positive");
  refused({"--global-batch", "4", "--device-memory", "1GiB", "--nvme-memory", "1TB"}, 78,
          "--nvme-memory and --nvme-path go together");
  folder.write("flat.json", R"({"zinc": {"mesh": {"tensor": 1, "sequence": 1, "pipe": 1}}})");
  refused({"--global-batch", "9", "--world", "4", "--device-memory", "1GiB", "--config",
           folder / "flat.json"},
          78, "cannot be divided among 4 ranks; the nearest that can: 8");
  refused({"--device-memory", "1GiB"}, 78, "the global batch is open");
  refused({"--global-batch", "4", "--device-memory", "1GiB", "--config", folder / "no.json"}, 78,
          "there is no configuration file");
  refused({"--global-batch", "4", "--device-memory", "1GiB", "--explain", "stege"}, 78,
          "no such key");
  const Ended ended = run_zinc({"plan", "--model", folder / "model.json", "--write", "x.json"});
  EXPECT_EQ(ended.exit_code, 64) << to_string(ended);
}

}  // namespace fit_command_test
}  // namespace zinc::apps
