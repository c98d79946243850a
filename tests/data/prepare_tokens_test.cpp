#include "data/records/prepare_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/token_sequence.h"
#include "tests/files/scratch_folder.h"
#include "text/tokenizer_folder.h"

namespace zinc::data {
namespace prepare_tokens_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTokenizer = "tests/reference/tokenizers/gpt2.json";  // ends a text by token 0

class PrepareTokens : public ::testing::Test {
 protected:
  PrepareTokens() {
    for (int i = 0; i < 3000; ++i) {
      lines_.push_back("Line " + std::to_string(i) + " of the text, and the earth was void.");
      text_ += lines_.back() + "\n";
    }
    options_ = {.files = {folder_.write("a.txt", text_)},
                .kind = DocumentKind::line,
                .folder = folder_ / "tokens",
                .shard_bytes = 40'000,
                .threads = 3};
  }
  PrepareProgress prepare(const std::atomic<bool>* stop = nullptr) {
    return prepare_tokens(*tokenizer_, options_, {}, stop);
  }
  std::vector<int32_t> tokens_of(const std::string& path) {
    const TokenFile file = TokenFile::open(path);
    std::vector<int32_t> tokens;
    file.append_to(tokens, 0, file.num_tokens(), tokenizer_->vocabulary_size());
    return tokens;
  }
  std::vector<int32_t> expected() {
    std::vector<int32_t> all;
    for (const std::string& line : lines_) {
      for (const int32_t id : tokenizer_->encode(line)) all.push_back(id);
      all.push_back(0);
    }
    return all;
  }
  // The tokens of all shards, in order.
  std::vector<int32_t> written(int64_t shards) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < shards; ++i) {
      for (const int32_t id :
           tokens_of(options_.folder + "/tokens_00000" + std::to_string(i) + ".bin")) {
        all.push_back(id);
      }
    }
    return all;
  }

  files::ScratchFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = text::load_tokenizer(kTokenizer);
  std::vector<std::string> lines_;
  std::string text_;
  PrepareOptions options_;
};

TEST_F(PrepareTokens, Lines_BecomeShardsWithAnIndexOfDocuments) {
  const PrepareProgress done = prepare();
  EXPECT_EQ(done.documents, 3000);
  EXPECT_EQ(done.shards, 4);
  EXPECT_EQ(done.kept_shards, 0);
  EXPECT_EQ(written(4), expected());
  EXPECT_EQ(done.tokens, static_cast<int64_t>(expected().size()));
  const std::string index = files::read_whole_file(options_.folder + "/tokens_000001.idx");
  std::vector<uint64_t> numbers(index.size() / 8);
  std::memcpy(numbers.data(), index.data(), index.size());
  ASSERT_EQ(numbers.size(), numbers[0] + 2);
  const std::vector<int32_t> tokens = tokens_of(options_.folder + "/tokens_000001.bin");
  EXPECT_EQ(numbers.back(), tokens.size());
  for (size_t i = 2; i < numbers.size(); ++i) {  // every document ends with the token that ends it
    ASSERT_EQ(tokens[numbers[i] - 1], 0);
    ASSERT_GT(numbers[i], numbers[i - 1]);
  }
}

TEST_F(PrepareTokens, AnyNumberOfThreads_WritesTheSameBytes) {
  prepare();
  const std::string first = files::read_whole_file(options_.folder + "/tokens_000002.bin");
  options_.folder = folder_ / "other";
  options_.threads = 1;
  prepare();
  EXPECT_EQ(files::read_whole_file(options_.folder + "/tokens_000002.bin"), first);
}

TEST_F(PrepareTokens, SecondCall_MakesOnlyWhatIsMissing) {
  prepare();
  std::filesystem::remove(options_.folder + "/tokens_000001.idx");
  std::filesystem::remove(options_.folder + "/tokens_000003.bin");
  const PrepareProgress done = prepare();
  EXPECT_EQ(done.kept_shards, 2);
  EXPECT_EQ(written(4), expected());
  EXPECT_EQ(done.tokens, static_cast<int64_t>(expected().size()));
}

TEST_F(PrepareTokens, Stopped_GoesOnAtTheNextCall) {
  const std::atomic<bool> stop = true;
  EXPECT_TRUE(prepare(&stop).stopped);
  EXPECT_FALSE(prepare().stopped);
  EXPECT_EQ(written(4), expected());
}

TEST_F(PrepareTokens, OtherArguments_AreRefused) {
  prepare();
  options_.shard_bytes = 50'000;
  EXPECT_THAT(files::message_of<ConfigError>([&] { prepare(); }),
              HasSubstr("holds tokens of other arguments, files or another tokenizer"));
}

TEST_F(PrepareTokens, JsonLinesAndFiles_AreDocuments) {
  options_.files = {
      folder_.write("a.jsonl", "{\"body\": \"the \\u00e9arth\"}\n\n{\"body\": \"was\"}\n")};
  options_.kind = DocumentKind::jsonl;
  options_.field = "body";
  EXPECT_EQ(prepare().documents, 2);
  lines_ = {
      "the \xC3\xA9"
      "arth",
      "was"};
  EXPECT_EQ(written(1), expected());
  options_.files = {folder_.write("b.txt", "the\nearth\n"), folder_.write("c.txt", "was")};
  options_.kind = DocumentKind::file;
  options_.folder = folder_ / "files";
  options_.end_documents = false;
  EXPECT_EQ(prepare().documents, 2);
  std::vector<int32_t> plain = tokenizer_->encode("the\nearth\n");
  for (const int32_t id : tokenizer_->encode("was")) plain.push_back(id);
  EXPECT_EQ(written(1), plain);
}

TEST_F(PrepareTokens, BadDocument_IsNamedAndLeavesNoShard) {
  options_.files = {folder_.write("bad.txt", "good\nb\xFFz\n")};
  EXPECT_THAT(files::message_of<DataError>([&] { prepare(); }),
              HasSubstr("bad.txt:2: not UTF-8 at byte 1"));
  EXPECT_THAT(files::names_in(options_.folder), ElementsAre("prepare.json"));
  options_.kind = DocumentKind::jsonl;
  options_.folder = folder_ / "other";
  options_.files = {folder_.write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n")};
  EXPECT_THAT(files::message_of<DataError>([&] { prepare(); }), HasSubstr("bad.jsonl:2"));
}

TEST_F(PrepareTokens, DamagedDocuments_AreLeftOutUpToALimit) {
  lines_ = {"the earth", "was void"};
  options_.files = {folder_.write("bad.txt", "the earth\nb\xFFz\nwas void\n\xFF\n")};
  options_.skip_bad = 2;
  const PrepareProgress done = prepare();
  EXPECT_EQ(done.documents, 4);
  EXPECT_EQ(done.damaged, 2);
  EXPECT_THAT(done.first_damage, HasSubstr("bad.txt:2: not UTF-8"));
  EXPECT_EQ(written(1), expected());
  options_.folder = folder_ / "other";
  options_.skip_bad = 1;
  EXPECT_THAT(files::message_of<DataError>([&] { prepare(); }),
              HasSubstr("bad.txt:4: not UTF-8 at byte 0 of the document\n  this is damaged record "
                        "2; --skip-bad 1 leaves out no more"));
}

// --- text that a tokenizer reads for a run

TEST_F(PrepareTokens, TokenFile_OfTextHasTheTokenizersTokens) {
  const TokenSequence tokens =
      TokenSequence::open(options_.files, TokenFormat::automatic, tokenizer_.get());
  EXPECT_TRUE(tokens.is_text());
  EXPECT_EQ(tokens.vocabulary_size(), tokenizer_->vocabulary_size());
  const std::vector<int32_t> ids = tokenizer_->encode(text_);
  ASSERT_EQ(tokens.num_tokens(), static_cast<int64_t>(ids.size()));
  std::vector<int32_t> part;
  tokens.parts()[0].file->append_to(part, 5, 25, tokens.vocabulary_size());
  EXPECT_EQ(part, std::vector<int32_t>(ids.begin() + 5, ids.begin() + 25));
  EXPECT_THAT(
      files::message_of<DataError>([&] { tokens.parts()[0].file->append_to(part, 0, 25, 3); }),
      HasSubstr("outside the vocabulary of 3 tokens"));
}

}  // namespace prepare_tokens_test
}  // namespace zinc::data
