// Keys that are "auto" and fill memory: zinc plan, zinc train and zinc plan --fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "files/input_file.h"
#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace fill_command_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The blocks of this model are larger than a segment of the allocator.
constexpr const char* kModel = R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
    "n_embd": 512, "n_layer": 2, "n_head": 4})";

std::string config(const std::string& limit) {
  return R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3,
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "steps_per_print": 1,
      "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0},
      "zinc": {"resident_memory": "auto")" +
         limit + "}}";
}

class FillCommand : public testing::Test {
 protected:
  FillCommand() {
    folder_.write("model.json", kModel);
    folder_.write("open.json", config(""));
    folder_.write("limited.json", config(R"(, "device_memory_limit": "110MiB")"));
  }
  // The value that the run in the folder had.
  int64_t resident() const {
    const auto json = files::json::parse(
        files::read_text_file(folder_.out() + "/config.resolved.json", 1 << 20), "resolved");
    return json.at("zinc").at("resident_memory").as_int64();
  }
  const TrainingFolder folder_;
};

TEST_F(FillCommand, Plan_SaysWhatItFoundWithinTheLimit) {
  std::vector<std::string> words{
      "plan", "--model", folder_ / "model.json", "--seq", "16", "--world", "2", "--config"};
  auto with = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> all = words;
    all.push_back(folder_ / file);
    all.insert(all.end(), more.begin(), more.end());
    return run_zinc(all);
  };
  const Ended limited = with("limited.json", {});
  EXPECT_EQ(limited.exit_code, 0) << to_string(limited);
  EXPECT_THAT(limited.out, AllOf(HasSubstr("\"auto\" fills "), HasSubstr(" of 110.00 MiB: "),
                                 HasSubstr("zinc.resident_memory ")));
  const Ended given = with("open.json", {"--device-memory", "118MiB"});
  EXPECT_THAT(given.out, HasSubstr(" of 118.00 MiB: zinc.resident_memory ")) << to_string(given);
  const Ended free = with("open.json", {});  // nine tenths of what is free here
  EXPECT_THAT(free.out, HasSubstr("\"auto\" fills ")) << to_string(free);
  const Ended json = with("limited.json", {"--json"});
  EXPECT_EQ(json.exit_code, 0) << to_string(json);
  EXPECT_THAT(json.out, Not(HasSubstr("fills")));
  EXPECT_EQ(with("open.json", {"--device-memory", "1MiB"}).exit_code, 71);
}

TEST_F(FillCommand, Train_RunsWithPlainNumbersThatAllRanksShare) {
  const Ended alone =
      run_zinc(folder_.train({"--config", folder_ / "open.json", "--seq", "16", "--dry-run"}));
  EXPECT_EQ(alone.exit_code, 0) << to_string(alone);
  EXPECT_THAT(alone.out, HasSubstr("\"auto\" fills "));
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  const Ended two =
      run_zinc(folder_.train({"--config", folder_ / "limited.json", "--seq", "16", "--force"}),
               {.ranks = 2, .find_leaks = false});
  EXPECT_EQ(two.exit_code, 0) << to_string(two);
  EXPECT_THAT(two.out, HasSubstr("\"auto\" fills "));
  EXPECT_GT(resident(), 0);
  // The plan of the same run finds the same.
  const Ended plan = run_zinc({"plan", "--model", folder_ / "model.json", "--seq", "16", "--world",
                               "2", "--config", folder_ / "limited.json", "--threads", "1"});
  EXPECT_THAT(plan.out, HasSubstr("zinc.resident_memory " + std::to_string(resident())))
      << to_string(two);
}

TEST_F(FillCommand, Train_ThatDoesNotFit_SaysSo) {
  folder_.write("small.json", config(R"(, "device_memory_limit": "1MiB")"));
  const Ended ended = run_zinc(folder_.train({"--config", folder_ / "small.json", "--seq", "16"}));
  EXPECT_EQ(ended.exit_code, 71) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("cannot make the run fit"));
}

TEST_F(FillCommand, Fit_GivesNumbersForThem) {
  const Ended found =
      run_zinc({"plan", "--fit", "--model", folder_ / "model.json", "--seq", "16", "--world", "2",
                "--global-batch", "6", "--device-memory", "118MiB", "--config",
                folder_ / "open.json", "--write", folder_ / "fitted.json"});
  EXPECT_EQ(found.exit_code, 0) << to_string(found);
  const std::string text = files::read_text_file(folder_ / "fitted.json", 1 << 20);
  EXPECT_THAT(text, AllOf(Not(HasSubstr("auto")), HasSubstr("resident_memory")));
  folder_.write("stage1.json", R"({"zero_optimization": {"stage": 1,
      "stage3_max_live_parameters": "auto"}, "zinc": {"resident_memory": "auto"}})");
  const Ended other =
      run_zinc({"plan", "--fit", "--model", folder_ / "model.json", "--seq", "16", "--world", "2",
                "--global-batch", "6", "--device-memory", "1GiB", "--config",
                folder_ / "stage1.json", "--write", folder_ / "fitted.json"});
  EXPECT_EQ(other.exit_code, 0) << to_string(other);
  EXPECT_THAT(files::read_text_file(folder_ / "fitted.json", 1 << 20), Not(HasSubstr("auto")));
}

}  // namespace fill_command_test
}  // namespace zinc::apps
