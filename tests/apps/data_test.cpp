// Files of records, as the command meets them: shown, trained on, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "files/json/parser.h"
#include "hub/model_config.h"
#include "hub/weight_folder.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace data_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTokenizer = "tests/reference/tokenizers/gpt2.json";

std::string pairs(int count) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content += "{\"prompt\": \"" + std::string(1 + i % 3, 'p') + "\", \"completion\": \"" +
               std::string(1 + i % 4, static_cast<char>('a' + i % 5)) + "\"}\n";
  }
  return content;
}

TEST(DataShow, PrintsExamplesAndCounts) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.jsonl", pairs(3));
  const Ended plain = run_zinc({"data", "show", path, "--tokenizer", kTokenizer});
  ASSERT_EQ(plain.exit_code, kDone) << to_string(plain);
  EXPECT_THAT(plain.out, HasSubstr("prompt=prompt, answer=completion; pattern \"{}\\n{}\""));
  EXPECT_THAT(plain.out, HasSubstr("p⟦\na<|endoftext|>⟧\n"));
  EXPECT_THAT(plain.out, HasSubstr("3 records, 3 examples"));
  EXPECT_EQ(folder.names().size(), 1U) << "it left something";
  const Ended colored = run_zinc({"data", "show", path, "--tokenizer", kTokenizer, "--pattern",
                                  "Q {}\\nA {}", "--mask", "offsets", "--color", "always"});
  EXPECT_THAT(colored.out, HasSubstr("\033[2mQ p\nA\033[0m\033[1;32m a<|endoftext|>\033[0m"))
      << to_string(colored);
  const Ended json =
      run_zinc({"data", "show", path, "--tokenizer", "bytes", "--fields", "text=prompt", "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"records\":3,\"examples\":2,"));
  EXPECT_THAT(json.out, HasSubstr("\"all_masked\":1"));
}

// zinc runs no Jinja: a template that writes other marks than the format is not what is trained.
TEST(DataShow, TemplateThatIsNotRendered_IsSaid) {
  const files::ScratchFolder folder;
  std::filesystem::copy_file(kTokenizer, folder / "tokenizer.json");
  const std::string path = folder.write("a.jsonl",
                                        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                        "{\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  const auto shown = [&](const std::string& config, const std::string& chat) {
    folder.write("tokenizer_config.json", config);
    std::vector<std::string> words{"data", "show", path, "--tokenizer", folder.path()};
    if (!chat.empty()) words.insert(words.end(), {"--chat", chat});
    const Ended ended = run_zinc(words);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return ended.out;
  };
  const char* const kOwn = "the tokenizer's own chat template is not rendered";
  EXPECT_THAT(shown("{}", ""), Not(HasSubstr(kOwn)));
  EXPECT_THAT(shown(R"({"chat_template": "{{ messages }}"})", ""), HasSubstr(kOwn));
  EXPECT_THAT(shown(R"({"chat_template": "<|im_start|>{{ role }}"})", "chatml"),
              Not(HasSubstr(kOwn)));
  EXPECT_THAT(shown(R"({"chat_template": "[INST]{{ role }}"})", "chatml"), HasSubstr(kOwn));
}

TEST(DataShow, SaysWhichMasksTrainTokenIds) {
  const files::ScratchFolder folder;
  const auto shown = [&](const std::string& more, const std::vector<std::string>& words) {
    const std::string path = folder.write("a.jsonl", "{\"input_ids\": [1, 2, 3]" + more + "}\n");
    std::vector<std::string> all{"data", "show", path, "--tokenizer", "bytes"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run_zinc(all);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return ended.out;
  };
  const std::string mask = R"(, "completion_mask": [0, 1, 1])";
  const std::string labels = R"(, "labels": [-100, 2, 3])";
  EXPECT_THAT(shown("", {}), HasSubstr("input_ids=input_ids; all trained\n"));
  EXPECT_THAT(shown(mask, {}), HasSubstr("; trained by completion_mask\n"));
  EXPECT_THAT(shown(mask, {"--fields", "input_ids=input_ids"}),
              HasSubstr("; trained by completion_mask\n"));
  EXPECT_THAT(shown(mask, {"--mask", "none"}), HasSubstr("; all trained\n"));
  EXPECT_THAT(shown(labels, {}), HasSubstr("labels=labels; trained by labels\n"));
  EXPECT_THAT(shown(labels + mask, {}), HasSubstr("; trained by labels, completion_mask\n"));
}

TEST(DataShow, ControlsOfAFileDoNotReachTheTerminal) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"x\\u001b[2Jy\\u009b1mz\"}\n");
  const Ended shown = run_zinc({"data", "show", path, "--tokenizer", "bytes"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("x?[2Jy?1mz"), Not(HasSubstr("\033"))));
}

class TrainOnRecords : public testing::Test {
 protected:
  void expect_refused(const std::vector<std::string>& changes, ExitCode code,
                      const std::string& says) {
    const std::vector<std::string> before = folder_.tree();
    const Ended ended = run_zinc(folder_.train(changes));
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(says));
    EXPECT_EQ(folder_.tree(), before);
  }
  TrainingFolder folder_;
};

TEST_F(TrainOnRecords, FromAFileToWeights) {
  const std::string path = folder_.write("a.jsonl", pairs(50));
  const Ended first = run_zinc(folder_.train({"--data", path}));
  ASSERT_EQ(first.exit_code, kDone) << to_string(first);
  EXPECT_THAT(first.out, HasSubstr("a.jsonl, 47 examples"));
  EXPECT_THAT(first.out, HasSubstr("on 2 of 3 examples of at most 16 tokens"));
  EXPECT_THAT(first.out, HasSubstr("50 records, 50 examples"));
  EXPECT_TRUE(std::filesystem::exists(folder_.out() + "/final/model.safetensors"));
  EXPECT_TRUE(folder_.unfinished().empty());
  EXPECT_EQ(files::names_in(folder_ / ".zinc-cache").size(), 1U);
}

TEST_F(TrainOnRecords, PackedRows_OfTheSameCache) {
  const std::string path = folder_.write("a.jsonl", pairs(50));
  const std::string llama = folder_.write(
      "llama.json", R"({"model_type": "llama", "vocab_size": 256, "max_position_embeddings": 16,
                        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                        "num_attention_heads": 2})");
  ASSERT_EQ(run_zinc(folder_.train({"--data", path, "--model", llama})).exit_code, kDone);
  const Ended packed =
      run_zinc(folder_.train({"--data", path, "--model", llama, "--pack", "--out", folder_ / "b"}));
  ASSERT_EQ(packed.exit_code, kDone) << to_string(packed);
  EXPECT_THAT(packed.out, HasSubstr("47 examples in 15 rows of 16 tokens"));
  EXPECT_EQ(files::names_in(folder_ / ".zinc-cache").size(), 1U);
  const Ended gpt2 = run_zinc(folder_.train({"--data", path, "--pack", "--out", folder_ / "c"}));
  ASSERT_EQ(gpt2.exit_code, kDone) << to_string(gpt2);
  EXPECT_THAT(gpt2.out, HasSubstr("47 examples in 15 rows of 16 tokens"));
}

// A tokenizer, records of unequal lengths, several ranks: the loss of each step is that of one rank
// which accumulates as many micro-batches.
TEST_F(TrainOnRecords, RanksShareTheCacheAndTheLosses) {
  if (!have_mpirun()) GTEST_SKIP() << "this machine has no mpirun";
  const std::string path = folder_.write("a.csv", "text,label\nabc,x\ndefg,y\nhi,z\njklm,x\n");
  const auto losses = [&](const std::string& out, int ranks) {
    const Ended ended =
        run_zinc(folder_.train({"--data", path, "--validation", path, "--cache", folder_ / "cache",
                                "--out", folder_ / out, "--tokenizer", kTokenizer, "--grad-accum",
                                ranks == 1 ? "2" : "1"}),
                 {.ranks = ranks});
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    EXPECT_THAT(ended.out, HasSubstr("prompt=text, answer=label"));
    std::vector<double> all;
    std::istringstream lines(files::read_whole_file(folder_ / out + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const files::json::Value step = files::json::parse(line, "metrics.jsonl");
      all.push_back(step.at("loss").as_double());
      if (const files::json::Value* loss = step.find("val_loss")) all.push_back(loss->as_double());
    }
    return all;
  };
  const std::vector<double> one = losses("one", 1), two = losses("two", 2);
  EXPECT_EQ(files::names_in(folder_ / "cache").size(), 1U);
  ASSERT_EQ(one.size(), 3U);  // two steps, and the evaluation at the end
  ASSERT_EQ(two.size(), 3U);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5) << i;  // f32 sums
}

TEST_F(TrainOnRecords, TextIsAStreamUnlessFieldsAreNamed) {
  const Ended lines = run_zinc(folder_.train(
      {"--data", folder_ / "text.txt", "--fields", "text=text", "--cache", folder_ / "cache"}));
  ASSERT_EQ(lines.exit_code, kDone) << to_string(lines);
  EXPECT_THAT(lines.out, HasSubstr("examples of at most 16 tokens"));
  expect_refused({"--pack", "--out", folder_ / "other"}, kConfiguration, "are of files of records");
}

// Four records of unequal lengths in batches of two: without the flag some batch of ten epochs is
// as long as the longest though it holds a short one.
TEST_F(TrainOnRecords, GroupByLength_IsTheUsersChoice) {
  std::string content;
  for (const size_t length : {3, 3, 14, 14}) {
    content += "{\"text\": \"" + std::string(length, 'a') + "\"}\n";
  }
  const std::string path = folder_.write("a.jsonl", content);
  const auto positions = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--data", path, "--validation", path, "--steps", "20", "--force"});
    const Ended ended = run_zinc(folder_.train(flags));
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    int64_t sum = 0;
    std::istringstream lines(files::read_whole_file(folder_.out() + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const files::json::Value step = files::json::parse(line, "metrics.jsonl");
      if (const files::json::Value* tokens = step.find("tokens")) sum += tokens->as_int64();
    }
    return sum;
  };
  EXPECT_EQ(positions({"--group-by-length"}), 10 * 2 * (8 + 16));
  EXPECT_GT(positions({}), 10 * 2 * (8 + 16));
  const std::string out = folder_ / "other";
  expect_refused({"--group-by-length", "--out", out}, kConfiguration, "are of files of records");
  expect_refused({"--data", path, "--group-by-length", "--pack", "--out", out}, kConfiguration,
                 "--group-by-length saves padding, and --pack makes all rows as long as --seq");
}

// The longest record has 7 tokens of 16. Without --longest a plan is that of records of 16.
TEST_F(TrainOnRecords, APlan_IsTheirPeak) {
  std::string content;
  for (int i = 0; i < 8; ++i)
    content += R"({"text": "abcdefg"})"
               "\n";
  const std::string path = folder_.write("a.jsonl", content);
  const std::string config = folder_.write("one.json", R"({"train_micro_batch_size_per_gpu": 2,
      "optimizer": {"type": "AdamW"}, "zinc": {"num_threads": 1}})");
  const auto planned = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"plan", "--config", config, "--model", folder_ / "model.json",
                                 "--seq", "16", "--threads", "1", "--json"});
    const Ended ended = run_zinc(flags);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return files::json::parse(ended.out, "plan").at("peak_bytes").as_int64();
  };
  const auto taken = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--config", config, "--data", path, "--validation", path, "--force"});
    const Ended ended = run_zinc(folder_.train(flags));
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    std::istringstream lines(files::read_whole_file(folder_.out() + "/metrics.jsonl"));
    std::string last;
    for (std::string line; std::getline(lines, line);) last = line;
    const files::json::Value step = files::json::parse(last, "metrics.jsonl");
    return step.at("peak_bytes").at("device").at("total").as_int64();
  };
  EXPECT_EQ(planned({"--longest", "7"}), taken({}));
  EXPECT_EQ(planned({}), taken({"--pad-to-longest"}));
  EXPECT_EQ(planned({"--pack"}), taken({"--pack"}));
  EXPECT_LT(planned({"--longest", "7"}), planned({}));
  EXPECT_EQ(run_zinc({"plan", "--config", config, "--model", folder_ / "model.json", "--seq", "16",
                      "--longest", "17"})
                .exit_code,
            kConfiguration);
}

TEST_F(TrainOnRecords, AFewExamples_AreEnough) {
  const std::string path = folder_.write("a.jsonl", pairs(2));
  const Ended ended = run_zinc(folder_.train({"--data", path, "--pad-to-longest"}));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
}

constexpr std::string_view kTinyT5 =
    R"({"model_type": "t5", "vocab_size": 256, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1,
        "num_heads": 2, "pad_token_id": 0, "decoder_start_token_id": 0})";
constexpr std::string_view kTinyClassifier =
    R"({"model_type": "encoder_classifier", "vocab_size": 256, "hidden_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
        "max_position_embeddings": 32, "num_labels": 2})";

TEST_F(TrainOnRecords, AnswersOfAnEncoderDecoder) {
  const std::string path = folder_.write("a.jsonl", pairs(50));
  const std::string model = folder_.write("t5.json", std::string(kTinyT5));
  const Ended ended = run_zinc(folder_.train({"--data", path, "--model", model}));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("prompt=prompt, answer=completion; pattern \"{}\\n{}\"; answers "
                                   "written"));
  EXPECT_THAT(ended.out, HasSubstr("3 texts of at most 256 tokens"));
  const Ended shown = run_zinc({"data", "show", path, "--tokenizer", "bytes", "--model", model});
  EXPECT_THAT(shown.out, HasSubstr("a.jsonl:1: 2 tokens, 1 trained\np⟦a⟧")) << to_string(shown);
  expect_refused({"--model", model, "--out", folder_ / "b"}, kConfiguration,
                 "t5 learns no text that goes on");
  expect_refused({"--data", path, "--model", model, "--pack", "--out", folder_ / "b"},
                 kConfiguration, "--pack joins texts that go on; t5 reads a text whole");
  expect_refused(
      {"--data", path, "--model", model, "--fields", "text=prompt", "--out", folder_ / "b"},
      kConfiguration, "t5 learns the answer of a text, but the records have text=prompt");
}

TEST_F(TrainOnRecords, ClassesOfTexts_AndTheirNamesAreSaved) {
  std::string content = "text,label\n";
  for (int i = 0; i < 20; ++i) content += i % 2 == 0 ? "good,pos\n" : "a bad one,neg\n";
  const std::string path = folder_.write("a.csv", content);
  const std::string model = folder_.write("classifier.json", std::string(kTinyClassifier));
  const Ended ended =
      run_zinc(folder_.train({"--data", path, "--model", model, "--classes", "neg,pos"}));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("prompt=text, answer=label; 2 classes: neg, pos"));
  const Ended figures = run_zinc({"evaluate", "--model", folder_.out() + "/final", "--data", path,
                                  "--metric", "accuracy,perplexity", "--save-predictions",
                                  folder_ / "answers.jsonl", "--seq", "16"});
  ASSERT_EQ(figures.exit_code, kDone) << to_string(figures);
  EXPECT_THAT(figures.out, HasSubstr("classes of 20 texts of at most 16 tokens"));
  EXPECT_THAT(files::read_whole_file(folder_ / "answers.jsonl"),
              HasSubstr("\"reference\":\"pos\"}\n"));
  // Names come from the folder then.
  const Ended again = run_zinc(folder_.train(
      {"--data", path, "--model", "", "--init", folder_.out() + "/final", "--out", folder_ / "b"}));
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  EXPECT_THAT(again.out, HasSubstr("2 classes: neg, pos"));
  expect_refused({"--data", path, "--model", model, "--out", folder_ / "c"}, kBadData,
                 "a.csv:2: \"pos\" is no class of the model's 2");
  expect_refused({"--data", path, "--model", model, "--classes", "a,b,c", "--out", folder_ / "c"},
                 kConfiguration, "--classes names 3 classes, but the model has 2 (num_labels)");
  expect_refused({"--data", path, "--classes", "neg,pos", "--out", folder_ / "c"}, kConfiguration,
                 "--classes names classes of texts, and gpt2 learns none");
}

// The folder has a model that learned masked tokens; its body is kept.
TEST_F(TrainOnRecords, AHeadForClasses_IsNew) {
  std::string content = "text,label\n";
  for (int i = 0; i < 20; ++i) content += i % 2 == 0 ? "w7 w8,pos\n" : "w9 w8 w7,neg\n";
  const std::string path = folder_.write("a.csv", content);
  const std::string base = folder_ / "base";
  std::filesystem::copy("tests/reference/roberta", base);
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 5; i < 43; ++i) vocabulary += "w" + std::to_string(i) + "\n";
  folder_.write("base/vocab.txt", vocabulary);
  const std::vector<std::string> tuned{"--data", path,        "--model", "",         "--init",
                                       base,     "--classes", "neg,pos", "--freeze", "roberta.*"};
  const Ended ended = run_zinc(folder_.train(tuned));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("base does not hold the head for "
                                   "classes, which is new: classifier.dense.weight, "
                                   "classifier.dense.bias, classifier.out_proj.weight, "
                                   "classifier.out_proj.bias\n"));
  const auto before = hub::WeightFolder::open(base);
  const auto after = hub::WeightFolder::open(folder_.out() + "/final");
  EXPECT_EQ(after.find("lm_head.bias"), nullptr);
  for (const auto& [name, location] : after.tensors()) {
    if (name.starts_with("classifier.")) continue;
    const auto* of_base = before.find(name);
    ASSERT_NE(of_base, nullptr) << name;
    std::vector<float> values(static_cast<size_t>(location.tensor().shape.numel())),
        base_values(values);
    const Shape flat{static_cast<int64_t>(values.size())};
    location.read(0, View(values.data(), DType::f32, flat));
    of_base->read(0, View(base_values.data(), DType::f32, flat));
    EXPECT_EQ(values, base_values) << name;
  }
  EXPECT_EQ(hub::class_names(hub::read_model_config(folder_.out() + "/final")),
            (std::vector<std::string>{"neg", "pos"}));
  expect_refused({"--data", path, "--model", "", "--init", base, "--classes", "neg,pos", "--lora",
                  "r=2,targets=all-linear", "--out", folder_ / "b"},
                 kConfiguration,
                 "gives this model a new head, which adapters would leave untrained");
}

// Trains a model of masked tokens on texts, and evaluates its guesses.
TEST_F(TrainOnRecords, HiddenTokens_OfTexts) {
  std::string content;
  for (int i = 0; i < 40; ++i)
    content += R"({"text": "w7 w8 w9 w10 w11 w12 w13 w14"})"
               "\n";
  const std::string path = folder_.write("a.jsonl", content);
  const std::string base = folder_ / "base";
  std::filesystem::copy("tests/reference/roberta", base);
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 5; i < 43; ++i) vocabulary += "w" + std::to_string(i) + "\n";
  folder_.write("base/vocab.txt", vocabulary);
  const std::vector<std::string> options{"--data",  path, "--model",           "",
                                         "--init",  base, "--mlm-probability", "0.4",
                                         "--steps", "30", "--validation",      path};
  const Ended ended = run_zinc(folder_.train(options));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("a.jsonl: text=text; tokens guessed"));
  const auto loss_of = [&](const std::string& model) {
    const Ended figures = run_zinc({"evaluate", "--model", model, "--data", path, "--metric",
                                    "perplexity", "--json", "--mlm-probability", "0.4"});
    EXPECT_EQ(figures.exit_code, kDone) << to_string(figures);
    const size_t at = figures.out.find("\"loss\":");
    return at == std::string::npos ? 0.0 : std::stod(figures.out.substr(at + 7));
  };
  // The same text always, of which most tokens are seen; as good as a guess before.
  const double before = loss_of(base), after = loss_of(folder_.out() + "/final");
  EXPECT_GT(before, 3.0);
  EXPECT_LT(after, before - 0.5);
  const Ended none = run_zinc({"evaluate", "--model", base, "--data", path, "--metric",
                               "perplexity", "--mlm-probability", "0.0001"});
  EXPECT_EQ(none.exit_code, kBadData) << to_string(none);
  EXPECT_THAT(none.err, HasSubstr("larger --mlm-probability"));
  const Ended shown = run_zinc({"data", "show", path, "--tokenizer", base, "--model", base});
  EXPECT_THAT(shown.out, HasSubstr("a.jsonl:1: 10 tokens, 8 trained\n[CLS]⟦")) << to_string(shown);
  expect_refused({"--data", path, "--model", "", "--init", base, "--fields",
                  "prompt=text,answer=text", "--out", folder_ / "b"},
                 kConfiguration, "roberta learns to guess tokens of a text, but the records have");
  expect_refused({"--model", "", "--init", base, "--out", folder_ / "b"}, kConfiguration,
                 "give records, or make each line of a .txt one by --fields text=text");
  expect_refused({"--data", path, "--mlm-probability", "0.2", "--out", folder_ / "b"},
                 kConfiguration, "and gpt2 learns the tokens that follow");
}

// The rows of new tokens are the mean of the others, in the embedding and in the head's bias.
TEST_F(TrainOnRecords, TokensAddedToTheTokenizer_HaveRowsOfTheirOwn) {
  std::string content;
  for (int i = 0; i < 20; ++i)
    content += R"({"text": "w7 <new> w8 w9 <other>"})"
               "\n";
  const std::string path = folder_.write("a.jsonl", content);
  const std::string base = folder_ / "base";
  std::filesystem::copy("tests/reference/roberta", base);
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 5; i < 43; ++i) vocabulary += "w" + std::to_string(i) + "\n";
  folder_.write("base/vocab.txt", vocabulary);
  folder_.write("base/added_tokens.json", R"({"<new>": 43, "<other>": 44})");
  const Ended ended = run_zinc(
      folder_.train({"--data", path, "--model", "", "--init", base, "--train", "lm_head.dense.*",
                     "--validation", path, "--mlm-probability", "0.5"}));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("note: 2 tokens were added to the tokenizer: the vocabulary "
                                   "grows from 43 to 45, and the rows of new tokens begin as the "
                                   "mean of the others\n"));
  const std::string saved = folder_.out() + "/final";
  EXPECT_EQ(hub::vocabulary_size(hub::read_model_config(saved).config), 45);
  const auto before = hub::WeightFolder::open(base), after = hub::WeightFolder::open(saved);
  int grown = 0;
  for (const auto& [name, location] : after.tensors()) {
    const Shape shape = location.tensor().shape;
    if (shape.dim(0) != 45) continue;
    ++grown;
    const int64_t columns = shape.numel() / 45;
    const auto* old = before.find(name);
    ASSERT_NE(old, nullptr) << name;
    std::vector<double> was(static_cast<size_t>(43 * columns));
    std::vector<double> is(static_cast<size_t>(45 * columns));
    old->read(0, View(was.data(), DType::f64, Shape{43 * columns}));
    location.read(0, View(is.data(), DType::f64, Shape{45 * columns}));
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0.0;
      for (int64_t row = 0; row < 43; ++row) {
        const auto at = static_cast<size_t>(row * columns + c);
        EXPECT_EQ(is[at], was[at]) << name;
        sum += was[at];
      }
      for (const int64_t row : {43, 44}) {
        EXPECT_EQ(is[static_cast<size_t>(row * columns + c)], static_cast<float>(sum / 43)) << name;
      }
    }
  }
  EXPECT_EQ(grown, 2);
  expect_refused({"--data", path, "--model", "", "--init", base, "--lora", "r=2,targets=all-linear",
                  "--out", folder_ / "b"},
                 kConfiguration, "has 45 tokens, of which 2 were added to those of the model's 43");
  // Another model's tokenizer is none that has grown.
  folder_.write("base/vocab.txt", vocabulary + "w43\nw44\n");
  std::filesystem::remove(base + "/added_tokens.json");
  expect_refused({"--data", path, "--model", "", "--init", base, "--out", folder_ / "b"}, kBadData,
                 "has a vocabulary of 45, the model one of 43");
}

TEST_F(TrainOnRecords, BadInput_IsNamedAndLeavesNothing) {
  const auto file = [&](const char* name, const std::string& content) {
    return folder_.write(name, content);
  };
  expect_refused({"--data", file("a.jsonl", "{\"frage\": 1}\n")}, kBadData,
                 "the fields \"frage\" are none of the known sets");
  expect_refused({"--data", file("b.jsonl", "")}, kBadData, "b.jsonl: holds no records");
  expect_refused({"--data", file("c.jsonl", pairs(99) + "{\"prompt\": \n" + pairs(9))}, kBadData,
                 "c.jsonl:100:");
  expect_refused({"--data", file("d.jsonl", pairs(20)), "--fields", "prompt=prompt,answer=reply"},
                 kBadData, "has no field \"reply\"; it has \"prompt\", \"completion\"");
  expect_refused({"--data", file("e.jsonl",
                                 "{\"prompt\": \"a prompt that fills it all\", "
                                 "\"completion\": \"x\"}\n")},
                 kBadData, "nothing is learned from any of its 1 records");
  expect_refused({"--data", file("f.jsonl", "{\"input_ids\": [1, 70000]}\n")}, kBadData,
                 "token 70000 is outside the vocabulary of 256");
  expect_refused({"--data", file("g.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 300]}\n")},
                 kBadData, "label 300 is outside the vocabulary of 256");
  const files::ScratchFolder cache;  // the record is a good one, and stays there
  expect_refused({"--data", file("h.jsonl", pairs(1)), "--cache", cache.path()}, kBadData,
                 "too few examples");
  expect_refused({"--data", folder_ / "d.jsonl", "--chat", "llama"}, kConfiguration,
                 "there is no format 'llama'");
  expect_refused({"--data", folder_ / "d.jsonl", "--pattern", "{}"}, kConfiguration, "--pattern");
  expect_refused({"--data", folder_ / "d.jsonl", "--validation", folder_ / "text.txt"},
                 kConfiguration, "1 of 2 files hold records");
}

TEST_F(TrainOnRecords, TokenizerThatDoesNotFitTheModel_IsRefused) {
  const std::string path = folder_.write("a.jsonl", pairs(20));
  ASSERT_EQ(run_zinc(folder_.train({"--out", folder_ / "init"})).exit_code, kDone);
  expect_refused({"--data", path, "--init", folder_ / "init/final", "--tokenizer", kTokenizer},
                 kBadData, "has a vocabulary of 420, the model one of 256");
}

TEST_F(TrainOnRecords, DamagedRecords_AreLeftOutUpToALimit) {
  const std::string path = folder_.write("a.jsonl", pairs(30) + "{\n" + pairs(3));
  const Ended ended = run_zinc(folder_.train({"--data", path, "--skip-bad", "1"}));
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("1 are damaged and left out; the first: "));
}

}  // namespace data_test
}  // namespace zinc::apps
