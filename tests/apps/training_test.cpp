// zinc train with the options that people know of the field's trainers: epochs, evaluations, the
// best model, early stopping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace training_test {

using files::read_whole_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Training : public testing::Test {
 protected:
  // zinc train without --steps.
  std::vector<std::string> train(const std::vector<std::string>& changes) const {
    std::vector<std::string> words = folder_.train(changes);
    const auto steps = std::find(words.begin(), words.end(), "--steps");
    words.erase(steps, steps + 2);
    return words;
  }

  Ended done(const std::vector<std::string>& words) const {
    Ended ended = run_zinc(words);
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    return ended;
  }

  std::vector<files::json::Value> metrics() const {
    std::vector<files::json::Value> lines;
    std::istringstream text(read_whole_file(folder_.out() + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(files::json::parse(line, "metrics.jsonl"));
    }
    return lines;
  }

  // Steps after which there was an evaluation.
  std::vector<int64_t> evaluated() const {
    std::vector<int64_t> steps;
    for (const auto& line : metrics()) {
      if (line.find("val_loss") != nullptr) steps.push_back(line.at("step").as_int64());
    }
    return steps;
  }

  std::string weights(const std::string& name) const {
    return read_whole_file(folder_.out() + "/" + name + "/model.safetensors");
  }

  TrainingFolder folder_;
};

TEST_F(Training, Epochs_EvaluatedAfterEach) {
  const Ended ended = done(train({"--epochs", "1.5", "--eval-strategy", "epoch"}));
  const size_t at = ended.out.find("  length");
  ASSERT_NE(at, std::string::npos) << ended.out;
  int64_t steps = 0, samples = 0;
  double epochs = 0.0;
  std::istringstream line(ended.out.substr(at + 9));
  std::string word;
  line >> steps >> word >> epochs >> word >> word >> samples;
  EXPECT_EQ(epochs, 1.5);
  EXPECT_EQ(steps, static_cast<int64_t>(std::ceil(1.5 * static_cast<double>(samples) / 2.0)));
  EXPECT_EQ(static_cast<int64_t>(metrics().size()), steps);
  EXPECT_THAT(evaluated(), ElementsAre((samples + 1) / 2, steps));
}

// With records an epoch is exact: the last batch is short.
TEST_F(Training, EpochsOfRecords_TakeEachAsOftenAsSaid) {
  std::string records;
  for (int i = 0; i < 7; ++i) records += "{\"text\": \"abcdefgh\"}\n";
  const std::string file = folder_.write("seven.jsonl", records);
  const Ended by_two =
      done(train({"--data", file, "--validation", file, "--epochs", "3", "--pad-to-longest"}));
  const auto lines = metrics();
  EXPECT_EQ(lines.size(), 11U);  // 21 samples by 2
  EXPECT_THAT(by_two.out, Not(HasSubstr("a sample twice")));
  records.resize(records.size() / 7 * 5);
  const std::string five = folder_.write("five.jsonl", records);
  const Ended of_five = done(train(
      {"--data", five, "--validation", five, "--epochs", "3", "--pad-to-longest", "--force"}));
  EXPECT_THAT(of_five.out, HasSubstr("a step takes 2 of 5 samples: where an epoch ends within a "
                                     "step, the step may hold a sample twice; steps of up to 1 "
                                     "samples never do"));
}

TEST_F(Training, TheFlagsOfTransformers_MeanTheSame) {
  done(train({"--max-steps", "4", "--eval-strategy", "steps", "--eval-steps", "2",
              "--eval-on-start", "--save-steps", "1", "--save-total-limit", "2", "--learning-rate",
              "1e-3", "--per-device-train-batch-size", "2", "--gradient-accumulation-steps", "1"}));
  EXPECT_THAT(evaluated(), ElementsAre(0, 2, 4));
  EXPECT_EQ(metrics().front().find("loss"), nullptr);
  EXPECT_THAT(read_whole_file(folder_.out() + "/metrics.csv"), HasSubstr("\n0,,,,,,,,,,,,"));
  EXPECT_THAT(files::names_in(folder_.out() + "/checkpoints"),
              ElementsAre("step-000003", "step-000004"));
}

TEST_F(Training, ADelay_LeavesOutTheFirstEvaluations) {
  const Ended ended = done(train({"--max-steps", "4", "--eval-steps", "1", "--eval-delay", "3"}));
  EXPECT_THAT(evaluated(), ElementsAre(3, 4));
  EXPECT_THAT(ended.out, HasSubstr("every 1 steps from step 3 on and at the end"));
}

TEST_F(Training, SeveralValidationSets_HaveALossEach) {
  const std::string other = folder_.write("other.txt", std::string(400, 'z'));
  const Ended ended =
      done(folder_.train({"--validation", "dev=" + (folder_ / "text.txt"), "--validation",
                          "z=" + other, "--eval-every", "1", "--metric-for-best-model", "z/loss"}));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("| dev "), HasSubstr("| z ")));
  for (const auto& line : metrics()) {
    EXPECT_EQ(line.at("val_loss").as_double(), line.at("val_z/loss").as_double());
    EXPECT_NE(line.at("val_dev/loss").as_double(), line.at("val_z/loss").as_double());
  }
  std::string events;
  for (const std::string& path : folder_.tree()) {
    if (path.find("tfevents") != std::string::npos) events += read_whole_file(folder_ / path);
  }
  EXPECT_THAT(events, AllOf(HasSubstr("eval/dev/loss"), HasSubstr("eval/z/loss")));
}

// Greater is better: the first evaluation is the best, and the weights after it are the result.
TEST_F(Training, TheBestModelIsLoadedAtTheEnd_AndARunWithoutABetterOneStops) {
  const std::vector<std::string> options = {"--steps",
                                            "20",
                                            "--eval-every",
                                            "2",
                                            "--export-every",
                                            "2",
                                            "--greater-is-better",
                                            "true",
                                            "--early-stopping-patience",
                                            "3",
                                            "--load-best-model-at-end"};
  const Ended ended = done(folder_.train(options));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("stopped early: 3 evaluations without an improvement"),
                               HasSubstr("/final: the best, of step 2, loss ")));
  EXPECT_THAT(evaluated(), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(metrics().size(), 8U);
  EXPECT_EQ(weights("final"), weights("step-000002"));
  EXPECT_NE(weights("final"), weights("step-000006"));
  const auto best = files::json::parse_file(folder_.out() + "/best.json");
  EXPECT_EQ(best.at("step").as_int64(), 2);
  EXPECT_EQ(best.at("metric").as_string(), "loss");
}

}  // namespace training_test
}  // namespace zinc::apps
