#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <set>

#include "core/error.h"
#include "data/token_file.h"
#include "data/token_sequence.h"
#include "data/token_windows.h"
#include "tests/files/scratch_folder.h"

namespace zinc::data {
namespace token_data_test {

using testing::ElementsAre;

template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return packed(header);
}

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> tokens;
  file.append_to(tokens, 0, file.num_tokens(), 0);
  return tokens;
}

TEST(TokenFile, Text_IsOneTokenPerByte) {
  const files::ScratchFolder folder;
  const TokenFile file = TokenFile::open(folder.write("a.txt", "h\xC3\xA9!"));
  EXPECT_EQ(file.format(), TokenFormat::text);
  EXPECT_EQ(file.vocabulary_size(), 256);
  EXPECT_THAT(all_tokens(file), ElementsAre('h', 0xC3, 0xA9, '!'));
}

TEST(TokenFile, LlmcUint16_ReadsBehindItsHeader) {
  const files::ScratchFolder folder;
  const std::vector<uint16_t> tokens = {5, 50256, 65535};
  const TokenFile file =
      TokenFile::open(folder.write("a.bin", llmc_header(20240520, 1, 3) + packed(tokens)));
  EXPECT_EQ(file.format(), TokenFormat::llmc);
  EXPECT_EQ(file.vocabulary_size(), 0);
  EXPECT_THAT(all_tokens(file), ElementsAre(5, 50256, 65535));
}

TEST(TokenFile, LlmcUint32_ReadsBehindItsHeader) {
  const files::ScratchFolder folder;
  const std::vector<uint32_t> tokens = {5, 128000, 70000};
  const TokenFile file =
      TokenFile::open(folder.write("a.bin", llmc_header(20240801, 7, 3) + packed(tokens)));
  EXPECT_THAT(all_tokens(file), ElementsAre(5, 128000, 70000));
}

TEST(TokenFile, NanoGpt_IsNothingButTokens) {
  const files::ScratchFolder folder;
  const std::vector<uint16_t> tokens = {1, 2, 50256};
  const TokenFile file = TokenFile::open(folder.write("train.bin", packed(tokens)));
  EXPECT_EQ(file.format(), TokenFormat::nanogpt);
  EXPECT_THAT(all_tokens(file), ElementsAre(1, 2, 50256));
}

TEST(TokenFile, GivenFormat_WinsOverTheName) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.bin", "text");
  EXPECT_EQ(TokenFile::open(path).num_tokens(), 2);
  EXPECT_EQ(TokenFile::open(path, TokenFormat::text).num_tokens(), 4);
}

struct BadFile {
  std::string name;
  std::string content;
  std::string message;  // without the path at its front
  TokenFormat format = TokenFormat::automatic;
};

TEST(TokenFile, BadInput_IsADataErrorWithThePlace) {
  const std::vector<BadFile> table = {
      {"a.txt", "", ": is empty"},
      {"a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
       ": a pointer of Git LFS stands in the place of the file itself: fetch it with `git lfs "
       "pull`, or download it"},
      {"a.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
       ": a pointer of Git LFS stands in the place of the file itself: fetch it with `git lfs "
       "pull`, or download it"},
      {"a.bin", "", ": is empty"},
      {"a.txt", "one\ntwo \xE9t\xE9\n",
       ": not UTF-8 at byte 8 (line 2, byte 0xe9); convert it, for example by iconv -f LATIN1 -t "
       "UTF-8"},
      {"a.bin", "abc",
       ": has 3 bytes, an odd number; a nanoGPT token file holds uint16 tokens and nothing else"},
      {"a.bin", llmc_header(20240520, 1, 4) + packed<uint16_t>({1, 2, 3}),
       ": the header announces 4 tokens of 2 bytes, but 6 bytes follow it"},
      {"a.bin", llmc_header(20240520, 1, -1),
       ": the header announces -1 tokens of 2 bytes, but 0 bytes follow it"},
      {"a.bin", llmc_header(20240520, 1, 0), ": holds no tokens"},
      {"a.bin", llmc_header(20240520, 2, 1) + packed<uint16_t>({1}),
       ": version 2 at byte 4; magic number 20240520 goes with version 1"},
      {"a.bin", llmc_header(20240801, 1, 1) + packed<uint32_t>({1}),
       ": version 1 at byte 4; magic number 20240801 goes with version 7"},
      {"a.bin", llmc_header(20240520, 1, 1).substr(0, 100),
       ": an llm.c token file starts with a header of 1024 bytes; this file has 100"},
      {"a.bin", llmc_header(20240522, 1, 1),
       ": is an evaluation set of llm.c (magic number 20240522), not a token file"},
      {"a.bin", llmc_header(20240326, 3, 1),
       ": is model weights of llm.c (magic number 20240326), not a token file"},
      {"a.bin", llmc_header(20240328, 2, 1),
       ": is a tokenizer of llm.c (magic number 20240328), not a token file"},
      {"a.bin", llmc_header(7, 1, 1),
       ": magic number 7 at byte 0; an llm.c token file has 20240520 or 20240801",
       TokenFormat::llmc},
  };
  const files::ScratchFolder folder;
  for (const BadFile& bad : table) {
    const std::string path = folder.write(bad.name, bad.content);
    EXPECT_EQ(files::message_of<DataError>([&] { TokenFile::open(path, bad.format); }),
              path + bad.message);
  }
  EXPECT_EQ(files::message_of<DataError>([&] { TokenFile::open(folder / "absent.txt"); }),
            "there is no file '" + (folder / "absent.txt") + "'");
}

TEST(TokenFile, TokenOutsideTheVocabulary_NamesItsByte) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.bin", packed<uint16_t>({1, 2, 300, 4}));
  const TokenFile file = TokenFile::open(path);
  std::vector<int32_t> out;
  file.append_to(out, 0, 4, 301);
  EXPECT_EQ(
      files::message_of<DataError>([&] { file.append_to(out, 1, 4, 300); }),
      path + ": token 300 at byte 4 (token number 2) is outside the vocabulary of 300 tokens");
  const std::string wide =
      folder.write("b.bin", llmc_header(20240801, 7, 1) + packed<uint32_t>({4000000000u}));
  EXPECT_EQ(files::message_of<DataError>([&] { all_tokens(TokenFile::open(wide)); }),
            wide +
                ": token 4000000000 at byte 1024 (token number 0) is outside the vocabulary of "
                "2147483648 tokens");
}

TEST(TokenFile, CutShortWhileInUse_IsADataError) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.txt", std::string(100, 'x'));
  const TokenFile file = TokenFile::open(path);
  ASSERT_EQ(::truncate(path.c_str(), 10), 0);
  EXPECT_EQ(files::message_of<DataError>([&] { all_tokens(file); }),
            path + ": was cut from 100 to 10 bytes while in use");
}

TEST(TokenSequence, MixedKindsAndNothing_AreRefused) {
  const files::ScratchFolder folder;
  const std::string text = folder.write("a.txt", "text");
  const std::string tokens = folder.write("b.bin", packed<uint16_t>({1, 2}));
  EXPECT_EQ(files::message_of<DataError>([&] { TokenSequence::open({}); }),
            "no data files were given");
  EXPECT_EQ(
      files::message_of<DataError>([&] {
        TokenSequence::open({text, tokens});
      }),
      "text and token files cannot be mixed: " + text + " is text, " + tokens + " is nanoGPT");
}

std::string tokens_of(const TokenSequence& sequence) {
  std::string all;
  for (const TokenSequence::FileTokens& part : sequence.parts()) {
    std::vector<int32_t> tokens;
    part.file->append_to(tokens, part.begin, part.end, 0);
    for (const int32_t token : tokens) all += static_cast<char>(token);
    all += '|';
  }
  return all;
}

TEST(TokenSequence, SplitTail_CutsThroughFilesAndLosesNothing) {
  const files::ScratchFolder folder;
  const TokenSequence whole =
      TokenSequence::open({folder.write("a.txt", "0123456"), folder.write("b.txt", "789"),
                           folder.write("c.txt", "AB")});
  EXPECT_EQ(whole.num_tokens(), 12);
  EXPECT_EQ(whole.describe(), "3 files (text, 12 tokens)");
  const auto check = [&](double fraction, std::string_view head, std::string_view tail) {
    const auto [train, validation] = whole.split_tail(fraction);
    EXPECT_EQ(tokens_of(train), head);
    EXPECT_EQ(tokens_of(validation), tail);
  };
  check(2.0 / 12, "0123456|789|", "AB|");
  check(3.0 / 12, "0123456|78|", "9|AB|");
  check(7.0 / 12, "01234|", "56|789|AB|");
  EXPECT_EQ(whole.split_tail(0.25).second.describe(), "2 files (text, 3 tokens)");
  EXPECT_EQ(files::message_of<DataError>([&] { whole.split_tail(0.01); }),
            "3 files (text, 12 tokens): too few tokens to keep a fraction of 0.01 for validation");
}

TEST(TokenWindows, LabelsFollowInputs_AndEveryTargetIsUsedOnce) {
  const files::ScratchFolder folder;
  const TokenWindows windows(
      TokenSequence::open({folder.write("a.txt", "abcdefghij"), folder.write("b.txt", "klmnop")}),
      {.seq_len = 3});
  EXPECT_EQ(windows.describe(), "2 files (text, 16 tokens), 4 sequences of 3");
  std::vector<std::string> inputs, labels;
  for (int64_t i = 0; i < windows.num_samples(); ++i) {
    Sample sample;
    windows.read(i, sample);
    inputs.emplace_back(sample.tokens.begin(), sample.tokens.end());
    labels.emplace_back(sample.labels.begin(), sample.labels.end());
  }
  EXPECT_THAT(inputs, ElementsAre("abc", "def", "ghi", "klm"));
  EXPECT_THAT(labels, ElementsAre("bcd", "efg", "hij", "lmn"));
}

TEST(TokenWindows, KeepShort_LeavesNoTargetOut) {
  const files::ScratchFolder folder;
  const TokenWindows windows(
      TokenSequence::open({folder.write("a.txt", "abcdefgh"), folder.write("b.txt", "ij")}),
      {.seq_len = 3, .keep_short = true});
  std::string labels;
  for (int64_t i = 0; i < windows.num_samples(); ++i) {
    Sample sample;
    windows.read(i, sample);
    EXPECT_EQ(sample.tokens.size(), sample.labels.size());
    labels += std::string(sample.labels.begin(), sample.labels.end()) + "|";
  }
  EXPECT_EQ(labels, "bcd|efg|h|j|");
}

TEST(TokenWindows, TooShort_NamesWhatIsNeeded) {
  const files::ScratchFolder folder;
  const TokenSequence sequence = TokenSequence::open({folder.write("a.txt", "abc")});
  EXPECT_EQ(files::message_of<DataError>([&] { TokenWindows(sequence, {.seq_len = 3}); }),
            "a.txt (text, 3 tokens): too short: a sequence needs 4 tokens in one file (3 inputs "
            "and one more target)");
  EXPECT_EQ(TokenWindows(sequence, {.seq_len = 3, .keep_short = true}).num_samples(), 1);
}

TEST(TokenWindows, VocabularyIsChecked) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("a.bin", packed<uint16_t>({1, 2, 900, 4}));
  const TokenWindows windows(TokenSequence::open({path}), {.seq_len = 3, .vocabulary_size = 900});
  Sample sample;
  EXPECT_EQ(
      files::message_of<DataError>([&] { windows.read(0, sample); }),
      path + ": token 900 at byte 4 (token number 2) is outside the vocabulary of 900 tokens");
}

}  // namespace token_data_test
}  // namespace zinc::data
