// A loss that is not finite ends `zinc train` by name; what was saved stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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
