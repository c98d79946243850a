// Text in, text out: a run with a tokenizer, and what it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/exit_codes.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"
#include "tests/core/await.h"

namespace zinc::apps {
namespace tokenizer_test {

using ::testing::HasSubstr;

const std::string kTokenizer = "tests/reference/tokenizers/gpt2.json";

TEST(Tokenize, EncodeAndDecode_AreInverse) {
  const Ended encoded =
      run_zinc({"tokenize", "encode", "--tokenizer", kTokenizer, "--text", "In the"});
  ASSERT_EQ(encoded.exit_code, kDone) << to_string(encoded);
  const Ended decoded =
      run_zinc({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", encoded.out});
  EXPECT_EQ(decoded.out, "In the") << to_string(decoded);
  const files::ScratchFolder folder;
  const std::string lines = folder.write("lines", "\"a\\nb\"\n\"\"\n");
  const Ended many =
      run_zinc({"tokenize", "encode", "--tokenizer", kTokenizer, "--json-lines", lines});
  ASSERT_EQ(many.exit_code, kDone) << to_string(many);
  const files::json::Value first =
      files::json::parse(many.out.substr(0, many.out.find('\n')), "ids");
  EXPECT_GT(first.as_array().size(), 1U) << many.out;
  const std::string ids = folder.write("ids", many.out);
  EXPECT_EQ(run_zinc({"tokenize", "decode", "--tokenizer", kTokenizer, "--json-lines", ids}).out,
            "\"a\\nb\"\n\"\"\n");
}

TEST(Tokenize, Bench_EncodesEachText) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("text", "In the\n\nIn the\n");
  const auto tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"tokenize", "bench", "--tokenizer", kTokenizer, path, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_zinc(words);
    const files::json::Value figures = files::json::parse(ended.out, to_string(ended));
    EXPECT_EQ(figures.at("bytes").as_int64(), 15);
    EXPECT_GT(figures.at("bytes_per_second").as_double(), 0.0);
    return figures.at("tokens").as_int64();
  };
  EXPECT_EQ(tokens({"--lines"}) % 2, 0);
  EXPECT_GT(tokens({}), tokens({"--lines"}));  // ends of lines are text
}

TEST(Tokenize, WordThatIsNoToken_IsNamed) {
  const Ended ended =
      run_zinc({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", "1 two"});
  EXPECT_EQ(ended.exit_code, kBadData);
  EXPECT_THAT(ended.err, HasSubstr("'two' is no token id"));
  const Ended outside =
      run_zinc({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", "900000"});
  EXPECT_EQ(outside.exit_code, kBadData);
  EXPECT_THAT(outside.err, HasSubstr("decode: token 900000 at position 0"));
}

// A vocabulary that is learned here, token files that a killed command left half, and two ranks
// that train on them.
TEST(Tokenize, FromTextToTokenFilesToARunOfSeveralRanks) {
  const TrainingFolder folder;
  const std::string bpe = folder / "bpe", tokens = folder / "tokens";
  const Ended learned =
      run_zinc({"tokenize", "train", folder / "text.txt", "--out", bpe, "--vocabulary", "280"});
  ASSERT_EQ(learned.exit_code, kDone) << to_string(learned);
  EXPECT_THAT(learned.out, HasSubstr("280 tokens"));

  std::string text;
  while (text.size() < 12'000'000) text += str("Line ", text.size(), " of a text to prepare.\n");
  const std::string path = folder.write("long.txt", text);
  const auto prepare = [&](const std::string& out) {
    return std::vector<std::string>{"tokenize", "prepare",     "--tokenizer", bpe,
                                    path,       "--out",       out,           "--documents",
                                    "line",     "--shard-mib", "1",           "--json"};
  };
  CommandProcess killed(prepare(tokens));
  await([&] { return !killed.is_running() || files::file_exists(tokens + "/tokens_000001.idx"); });
  killed.send(SIGKILL);
  killed.finish();
  const Ended resumed = run_zinc(prepare(tokens)), whole = run_zinc(prepare(folder / "whole"));
  ASSERT_EQ(resumed.exit_code, kDone) << to_string(resumed);
  const files::json::Value a = files::json::parse(resumed.out, "resumed"),
                           b = files::json::parse(whole.out, "whole");
  EXPECT_EQ(a.at("shards").as_int64(), 12);
  EXPECT_GE(a.at("kept_shards").as_int64(), 2);
  EXPECT_EQ(a.at("tokens").as_int64(), b.at("tokens").as_int64());
  EXPECT_EQ(files::names_in(tokens), files::names_in(folder / "whole"));
  for (const std::string& name : files::names_in(tokens)) {
    EXPECT_EQ(files::read_whole_file(tokens + '/' + name),
              files::read_whole_file(folder / "whole/" + name))
        << name;
  }

  if (!have_mpirun()) GTEST_SKIP() << "this machine has no mpirun";
  std::string model = files::read_whole_file(folder / "model.json");
  model.replace(model.find("256"), 3, "280");
  folder.write("model.json", model);
  const Ended run = run_zinc(
      folder.train({"--tokenizer", bpe, "--data", tokens + "/tokens_000000.bin"}), {.ranks = 2});
  ASSERT_EQ(run.exit_code, kDone) << to_string(run);
  EXPECT_THAT(run.out, HasSubstr("tokenizer.json, 280 tokens"));
  EXPECT_EQ(files::read_whole_file(folder.out() + "/final/tokenizer.json"),
            files::read_whole_file(bpe + "/tokenizer.json"));
}

TEST(RunWithTokenizer, SavesItAndSpeaksText) {
  const TrainingFolder folder;
  const std::string tokenizer = files::read_whole_file(kTokenizer);
  folder.write("tokenizer.json", tokenizer);
  const Ended first = run_zinc(folder.train({"--tokenizer", folder / "tokenizer.json"}));
  ASSERT_EQ(first.exit_code, kDone) << to_string(first);
  EXPECT_THAT(first.out, HasSubstr("the model's vocabulary is replaced by 420"));
  EXPECT_THAT(first.out, HasSubstr("sample:"));
  EXPECT_EQ(files::read_whole_file(folder.out() + "/final/tokenizer.json"), tokenizer);
  // The saved model brings its tokenizer.
  const Ended text = run_zinc({"generate", "--model", folder.out() + "/final", "--prompt", "In the",
                               "--tokens", "4", "--seed", "3"});
  ASSERT_EQ(text.exit_code, kDone) << to_string(text);
  EXPECT_THAT(text.out, testing::StartsWith("In the"));
  const Ended again = run_zinc(folder.train({"--model", folder.out() + "/final", "--init",
                                             folder.out() + "/final", "--out", folder / "second"}));
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  EXPECT_EQ(files::read_whole_file(folder / "second/final/tokenizer.json"), tokenizer);
}

}  // namespace tokenizer_test
}  // namespace zinc::apps
