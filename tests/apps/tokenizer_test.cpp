// Text in, text out: a run with a tokenizer, and what it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace tokenizer_test {

using ::testing::HasSubstr;

const std::string kTokenizer = "tests/reference/tokenizers/gpt2.json";

Ended run(const std::vector<std::string>& arguments) {
  CommandProcess process(arguments);
  return process.finish();
}

TEST(Tokenize, EncodeAndDecode_AreInverse) {
  const Ended encoded = run({"tokenize", "encode", "--tokenizer", kTokenizer, "--text", "In the"});
  ASSERT_EQ(encoded.exit_code, kDone) << to_string(encoded);
  const Ended decoded =
      run({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", encoded.out});
  EXPECT_EQ(decoded.out, "In the") << to_string(decoded);
  const train::ScratchFolder folder;
  const std::string lines = folder.write("lines", "\"a\\nb\"\n\"\"\n");
  const Ended many = run({"tokenize", "encode", "--tokenizer", kTokenizer, "--json-lines", lines});
  ASSERT_EQ(many.exit_code, kDone) << to_string(many);
  const std::string ids = folder.write("ids", many.out);
  EXPECT_EQ(run({"tokenize", "decode", "--tokenizer", kTokenizer, "--json-lines", ids}).out,
            "\"a\\nb\"\n\"\"\n");
}

TEST(Tokenize, WordThatIsNoToken_IsNamed) {
  const Ended ended = run({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", "1 two"});
  EXPECT_EQ(ended.exit_code, kBadData);
  EXPECT_THAT(ended.err, HasSubstr("'two' is no token id"));
  const Ended outside = run({"tokenize", "decode", "--tokenizer", kTokenizer, "--text", "900000"});
  EXPECT_EQ(outside.exit_code, kBadData);
  EXPECT_THAT(outside.err, HasSubstr("decode: token 900000 at position 0"));
}

TEST(RunWithTokenizer, SavesItAndSpeaksText) {
  const TrainingFolder folder;
  const std::string tokenizer = train::read_whole_file(kTokenizer);
  folder.write("tokenizer.json", tokenizer);
  const Ended first = run(folder.train({"--tokenizer", folder / "tokenizer.json"}));
  ASSERT_EQ(first.exit_code, kDone) << to_string(first);
  EXPECT_THAT(first.out, HasSubstr("the model's vocabulary is replaced by 420"));
  EXPECT_THAT(first.out, HasSubstr("sample:"));
  EXPECT_EQ(train::read_whole_file(folder.out() + "/final/tokenizer.json"), tokenizer);
  // What was saved brings its tokenizer.
  const Ended text = run({"generate", "--model", folder.out() + "/final", "--prompt", "In the",
                          "--tokens", "4", "--seed", "3"});
  ASSERT_EQ(text.exit_code, kDone) << to_string(text);
  EXPECT_THAT(text.out, testing::StartsWith("In the"));
  const Ended again = run(folder.train({"--model", folder.out() + "/final", "--init",
                                        folder.out() + "/final", "--out", folder / "second"}));
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  EXPECT_EQ(train::read_whole_file(folder / "second/final/tokenizer.json"), tokenizer);
}

}  // namespace tokenizer_test
}  // namespace zinc::apps
