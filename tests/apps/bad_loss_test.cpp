// A loss that is not finite ends `zinc train` by name; what was saved stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace bad_loss_test {

using testing::HasSubstr;

// A learning rate that no weight survives.
std::vector<std::string> exploding(const TrainingFolder& folder,
                                   std::vector<std::string> changes = {}) {
  folder.write("hot.json", R"({"train_micro_batch_size_per_gpu": 2,
      "optimizer": {"type": "AdamW", "params": {"lr": 3e38}}, "steps_per_print": 1})");
  changes.insert(changes.end(), {"--config", folder / "hot.json", "--steps", "9"});
  return folder.train(changes);
}

// Steps that the run went on from although their loss was not finite.
int num_lost_losses(const std::string& metrics) {
  std::ifstream file(metrics);
  int lost = 0;
  for (std::string line; std::getline(file, line);) {
    lost += line.find("\"loss\":null") != std::string::npos ? 1 : 0;
  }
  return lost;
}

TEST(BadLoss, EndsTheRunByName_WithTheWeightsBeforeItOrNone) {
  for (const int ranks : {1, 2}) {
    if (ranks > 1 && !have_mpirun()) continue;
    const TrainingFolder folder;
    const Ended ended = run_zinc(exploding(folder), {.ranks = ranks});
    EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr("zinc: step "));
    EXPECT_THAT(ended.err, HasSubstr(": the loss is "));
    EXPECT_THAT(ended.err, HasSubstr("--allow-nan"));
    EXPECT_FALSE(std::filesystem::exists(folder.out() + "/final"));
    EXPECT_FALSE(std::filesystem::exists(folder.out() + "/best"));
  }
}

// In 16 bits a gradient that is not finite skips its step. A loss that is not finite ends the run
// as in f32, in f16 at the second in a row, and so does a run without a step that changed a weight.
TEST(BadLoss, OfSkippedSteps_EndsTheRunInEveryDtype) {
  const TrainingFolder folder;
  const auto run = [&](const std::string& precision, const std::string& lr,
                       std::vector<std::string> changes) {
    folder.write("hot.json", R"({"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": )" +
                                 lr + "}}, " + precision + "}");
    changes.insert(changes.begin(), {"--config", folder / "hot.json", "--steps", "9", "--force"});
    return run_zinc(folder.train(changes));
  };
  for (const std::string precision :
       {R"("bf16": {"enabled": true})",
        R"("fp16": {"enabled": true, "initial_scale_power": 1, "hysteresis": 50})"}) {
    const Ended ended = run(precision, "1e30", {});
    EXPECT_EQ(ended.exit_code, kBadData) << precision << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(": the loss is ")) << precision;
    EXPECT_THAT(ended.err, HasSubstr("--allow-nan"));
    EXPECT_FALSE(std::filesystem::exists(folder.out() + "/final"));
    const bool is_f16 = precision.find("fp16") != std::string::npos;
    EXPECT_EQ(num_lost_losses(folder.out() + "/metrics.jsonl"), is_f16 ? 1 : 0) << precision;
  }
  const std::string fixed = R"("fp16": {"enabled": true, "loss_scale": 1e30})";
  const Ended ended = run(fixed, "1e-3", {});
  EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("nothing was learned: all 9 steps were skipped"));
  EXPECT_THAT(ended.err, HasSubstr("lower fp16.loss_scale"));
  EXPECT_FALSE(std::filesystem::exists(folder.out() + "/final"));
  const Ended falls =
      run(R"("fp16": {"enabled": true, "initial_scale_power": 30, "hysteresis": 1})", "1e-3", {});
  EXPECT_EQ(falls.exit_code, kBadData) << to_string(falls);
  EXPECT_THAT(falls.err, HasSubstr("lower fp16.initial_scale_power, or take more steps"));
  const Ended learns =
      run(R"("fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1})", "1e-3",
          {"--steps", "30"});
  EXPECT_EQ(learns.exit_code, 0) << to_string(learns);
  EXPECT_THAT(learns.out, HasSubstr("\nsteps applied: "));
  EXPECT_THAT(learns.out, HasSubstr(", because the gradient was not finite"));
}

TEST(BadLoss, IsGoneThroughOnRequest_AndTheSampleChangesNothing) {
  const TrainingFolder folder;
  const Ended ended = run_zinc(exploding(folder, {"--allow-nan", "--eval-every", "3"}));
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("note: no sample: "));
  EXPECT_THAT(ended.out, HasSubstr("\n9 steps, "));
  EXPECT_FALSE(std::filesystem::exists(folder.out() + "/best"));
  EXPECT_TRUE(std::filesystem::exists(folder.out() + "/final/model.safetensors"));
}

}  // namespace bad_loss_test
}  // namespace zinc::apps
