// zinc evaluate --model: figures of weights on data, alone and on ranks, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace evaluate_test {

using files::json::Value;
using ::testing::HasSubstr;

// Weights of bytes after two steps, and data to ask them about.
class EvaluateModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    folder_->write("half.txt", std::string(1000, 'b') + std::string(500, 'c'));
    trained_ = run_zinc(
        folder_->train({"--validation", *folder_ / "half.txt", "--eval-batches", "10000"}));
    std::string questions, choices;
    for (int i = 0; i < 5; ++i) {
      const std::string n = std::to_string(i);
      questions += "{\"question\": \"what " + n + "\", \"answer\": \"e" + n + "\"}\n";
      choices += "{\"query\": \"what " + n + "\", \"choices\": [\"one\", \"a longer one\", \"" +
                 std::string(static_cast<size_t>(i) + 1, 'x') +
                 "\"], \"gold\": " + std::to_string(i % 3) + "}\n";
    }
    folder_->write("questions.jsonl", questions);
    folder_->write("choices.jsonl", choices);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::vector<std::string> words(const std::string& data,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> all{"evaluate", "--model",       folder_->out() + "/final",
                                 "--data",   *folder_ / data, "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static Value figures(const std::string& data, const std::vector<std::string>& more,
                       const CommandOptions& options = {}) {
    const Ended ended = run_zinc(words(data, more), options);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return files::json::parse(ended.exit_code == kDone ? ended.out : "{}", "figures");
  }
  static void expect_refused(const std::string& data, const std::vector<std::string>& more,
                             ExitCode code, const std::string& says) {
    const Ended ended = run_zinc(words(data, more));
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(says));
  }

  inline static std::optional<TrainingFolder> folder_;
  inline static Ended trained_;
};

TEST_F(EvaluateModel, Perplexity_IsThatOfTheTrainersEvaluation) {
  ASSERT_EQ(trained_.exit_code, kDone) << to_string(trained_);
  const std::string lines = files::read_whole_file(folder_->out() + "/metrics.jsonl");
  const size_t last = lines.rfind('\n', lines.size() - 2) + 1;
  const double loss =
      files::json::parse(lines.substr(last), "metrics.jsonl").at("val_loss").as_double();
  const Value read = figures("half.txt", {"--seq", "16", "--batch", "2"});
  EXPECT_EQ(read.at("loss").as_double(), loss);
  EXPECT_EQ(read.at("perplexity").as_double(), std::exp(loss));
  EXPECT_EQ(read.at("tokens").as_int64(), 1499);
}

TEST_F(EvaluateModel, Perplexity_OfExamples_IsOfTheirAnswers) {
  const Value read = figures("questions.jsonl", {"--seq", "16", "--cache", *folder_ / "cache"});
  EXPECT_EQ(read.at("examples").as_int64(), 5);
  EXPECT_EQ(read.at("tokens").as_int64(), 5 * 3);  // an end of line and two bytes each
  const Value some =
      figures("questions.jsonl", {"--seq", "16", "--cache", *folder_ / "cache", "--limit", "2"});
  EXPECT_EQ(some.at("examples").as_int64(), 2);
}

TEST_F(EvaluateModel, WrittenAnswers_ScoreAsTheSamePairsDo) {
  const std::string pairs = *folder_ / "pairs.jsonl";
  const std::string metrics = "rouge,bleu,exact_match,accuracy,f1_macro";
  const Value read = figures("questions.jsonl",
                             {"--metric", metrics, "--tokens", "4", "--save-predictions", pairs});
  EXPECT_EQ(read.at("examples").as_int64(), 5);
  const Ended again = run_zinc({"evaluate", "--pairs", pairs, "--metric", metrics, "--json"});
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  const Value scored = files::json::parse(again.out, "pairs");
  for (const char* name : {"rouge1", "rougeLsum", "bleu", "exact_match", "accuracy", "f1_macro"}) {
    EXPECT_EQ(read.at(name).as_double(), scored.at(name).as_double()) << name;
  }
  EXPECT_THAT(files::read_whole_file(pairs), HasSubstr("\"reference\":\"e4\"}"));
}

TEST_F(EvaluateModel, EveryWorld_GivesTheSameFigures) {
  if (!have_mpirun()) GTEST_SKIP() << "this machine has no mpirun";
  const std::vector<std::string> perplexity{"--seq", "16", "--batch", "2"};
  const std::vector<std::string> texts{"--metric", "rougeL,bleu", "--tokens", "4"};
  const std::vector<std::string> choice{"--metric", "choice"};
  const Value loss = figures("half.txt", perplexity), rouge = figures("questions.jsonl", texts),
              acc = figures("choices.jsonl", choice);
  EXPECT_EQ(acc.at("examples").as_int64(), 5);
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded);
    const auto with = [&](std::vector<std::string> words) {
      if (sharded) words.push_back("--sharded");
      return words;
    };
    const CommandOptions two{.ranks = 2, .find_leaks = sharded};
    EXPECT_EQ(figures("half.txt", with(perplexity), two).at("loss").as_double(),
              loss.at("loss").as_double());
    EXPECT_EQ(figures("questions.jsonl", with(texts), two).at("rougeL").as_double(),
              rouge.at("rougeL").as_double());
    for (const char* name : {"acc", "acc_norm", "acc_bytes", "acc_error"}) {
      EXPECT_EQ(figures("choices.jsonl", with(choice), two).at(name).as_double(),
                acc.at(name).as_double());
    }
  }
}

TEST_F(EvaluateModel, BadInput_IsNamed) {
  folder_->write("empty.jsonl", "");
  folder_->write("text.jsonl", "{\"text\": \"a\"}\n");
  folder_->write("outside.jsonl", "{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 7}\n");
  expect_refused("empty.jsonl", {"--metric", "bleu"}, kBadData, "empty.jsonl: holds no records");
  expect_refused("empty.jsonl", {"--metric", "choice"}, kBadData, "empty.jsonl: holds no records");
  expect_refused("empty.jsonl", {}, kBadData, "empty.jsonl: holds no records");
  expect_refused("text.jsonl", {"--metric", "rouge"}, kConfiguration,
                 "--metric rouge1 compares answers, but");
  expect_refused("questions.jsonl", {"--metric", "choice"}, kBadData,
                 "have no choices of a question with choices");
  expect_refused("outside.jsonl", {"--metric", "choice"}, kBadData,
                 "answer 7 is outside the 2 choices");
  expect_refused("questions.jsonl", {"--metric", "f1"}, kConfiguration,
                 "--metric f1 is of the label '1' (--positive), which no answer is");
  expect_refused("questions.jsonl", {"--metric", "blue"}, kConfiguration,
                 "there is no score 'blue'");
  expect_refused("questions.jsonl", {"--metric", "choice,bleu"}, kConfiguration, "give it alone");
  expect_refused("questions.jsonl", {"--seq", "17"}, kConfiguration,
                 "--seq 17 is longer than the model's 16 positions");
  for (const char* metric : {"perplexity", "bleu"}) {
    expect_refused("questions.jsonl",
                   {"--metric", metric, "--tokenizer", "tests/reference/tokenizers/gpt2.json"},
                   kBadData, "has a vocabulary of 420, the model one of 256");
  }
  const Ended neither = run_zinc({"evaluate", "--metric", "bleu"});
  EXPECT_EQ(neither.exit_code, kConfiguration);
  EXPECT_THAT(neither.err, HasSubstr("give --model with --data"));
}

TEST_F(EvaluateModel, AnswersThatAreNoLabel_AreCounted) {
  const Ended ended =
      run_zinc({"evaluate", "--model", folder_->out() + "/final", "--data",
                *folder_ / "questions.jsonl", "--metric", "accuracy", "--tokens", "2"});
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("note: 5 of 5 answers are none of the 5 labels of the data"));
}

// The second record is the second rank's: what it says is the one message.
TEST_F(EvaluateModel, ARankThatFails_EndsAll) {
  if (!have_mpirun()) GTEST_SKIP() << "this machine has no mpirun";
  folder_->write("gap.jsonl",
                 "{\"question\": \"q\", \"answer\": \"a\"}\n"
                 "{\"question\": \"\", \"answer\": \"a\"}\n");
  for (const char* where : {"--json", "--sharded"}) {
    const Ended ended = run_zinc(
        words("gap.jsonl", {"--metric", "bleu", "--pattern", "{}{}", "--tokens", "3", where}),
        {.ranks = 2});
    EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr("gap.jsonl:2: the prompt is empty"));
    EXPECT_EQ(ended.err.find("zinc: "), ended.err.rfind("zinc: ")) << ended.err;
  }
}

// Weights that are no numbers: one sentence, not a figure.
TEST_F(EvaluateModel, DamagedWeights_GiveNoFigure) {
  const std::string name = folder_->out() + "/final/model.safetensors";
  std::string bytes = files::read_whole_file(name);
  for (size_t i = bytes.size() - 4096; i < bytes.size(); ++i) bytes[i] = '\xff';  // NaN in f32
  const std::string good = files::read_whole_file(name);
  folder_->write("run/final/model.safetensors", bytes);
  expect_refused("half.txt", {"--seq", "16"}, kBadData, "is not a number");
  expect_refused("questions.jsonl", {"--metric", "bleu"}, kBadData,
                 "the model's logits are no numbers");
  expect_refused("choices.jsonl", {"--metric", "choice"}, kBadData,
                 "the log-likelihood of choice 0 is not a number");
  folder_->write("run/final/model.safetensors", good);
}

}  // namespace evaluate_test
}  // namespace zinc::apps
