#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "files/utf8.h"
#include "tests/files/scratch_folder.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/tokenizer_folder.h"

namespace zinc::text {
namespace text_test {

const std::string kReplaced = "\xEF\xBF\xBD";

struct BadText {
  std::string bytes;
  int64_t offset;        // of the first invalid byte
  std::string replaced;  // result of Python's bytes.decode("utf-8", "replace")
};

const std::vector<BadText>& bad_texts() {
  const std::string& r = kReplaced;
  static const std::vector<BadText> table = {
      {"a\x80", 1, "a" + r},                     // continuation without a lead byte
      {"\xC0\xAF", 0, r + r},                    // overlong
      {"\xC1\xBF", 0, r + r},                    // overlong
      {"\xE0\x9F\xBF", 0, r + r + r},            // overlong
      {"\xF0\x8F\xBF\xBF", 0, r + r + r + r},    // overlong
      {"\xED\xA0\x80x", 0, r + r + r + "x"},     // surrogate
      {"\xF4\x90\x80\x80", 0, r + r + r + r},    // above U+10FFFF
      {"\xF5\x80\x80\x80", 0, r + r + r + r},    // above U+10FFFF
      {"\xFF\xFE", 0, r + r},                    // no lead bytes at all
      {"12345678\xE2\x82", 8, "12345678" + r},   // cut short
      {"\xE2\x82z", 0, r + "z"},                 // cut short by another character
      {"\xF0\x9F\x98", 0, r},                    // cut short
      {"\xF0\x9F\xC3\xA9", 0, r + "\xC3\xA9"},   // cut short by another character
      {"\xC3\xA9\xC3", 2, "\xC3\xA9" + r},       // valid, then cut short
      {"\xF0\x80\x80\x41", 0, r + r + r + "A"},  // overlong, then ASCII
      {"1234567\xC3\xA9\x80"
       "9",
       9, "1234567\xC3\xA9" + r + "9"},  // across a word boundary
  };
  return table;
}

TEST(Utf8, InvalidBytes_AreFoundAtTheirOffset) {
  for (const BadText& bad : bad_texts()) {
    EXPECT_EQ(files::first_invalid_utf8(bad.bytes), bad.offset)
        << testing::PrintToString(bad.bytes);
  }
}

TEST(Utf8, WellFormedText_Passes) {
  for (const std::string text :
       {"", "plain ASCII, longer than eight bytes", "\xC3\xA9", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(files::first_invalid_utf8(text), std::nullopt) << text;
    EXPECT_EQ(files::replace_invalid_utf8(text), text);
  }
  const std::string with_nul("a\0b", 3);
  EXPECT_EQ(files::first_invalid_utf8(with_nul), std::nullopt);
}

TEST(Utf8, InvalidBytes_AreReplacedAsTheUnicodeStandardRecommends) {
  for (const BadText& bad : bad_texts()) {
    EXPECT_EQ(files::replace_invalid_utf8(bad.bytes), bad.replaced)
        << testing::PrintToString(bad.bytes);
  }
}

TEST(Utf8Stream, AnyDivision_GivesTheSameText) {
  std::string all;
  for (const BadText& bad : bad_texts()) all += bad.bytes + "\xF0\x9F\x98\x80";
  const std::string expected = files::replace_invalid_utf8(all);
  for (size_t step = 1; step <= 5; ++step) {
    files::Utf8Stream stream;
    std::string text;
    for (size_t i = 0; i < all.size(); i += step) {
      text += stream.push(std::string_view(all).substr(i, step));
    }
    EXPECT_EQ(text + stream.finish(), expected) << "pieces of " << step;
  }
}

TEST(ByteTokenizer, EveryByte_IsItsToken) {
  const ByteTokenizer tokenizer;
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::vector<int32_t> tokens = tokenizer.encode(all);
  ASSERT_EQ(tokens.size(), 256U);
  for (int32_t i = 0; i < 256; ++i) {
    EXPECT_EQ(tokens[static_cast<size_t>(i)], i);
    std::string bytes;
    tokenizer.append_bytes(i, false, bytes);
    EXPECT_EQ(bytes, std::string(1, static_cast<char>(i)));
  }
  EXPECT_EQ(tokenizer.vocabulary_size(), 256);
}

TEST(ByteTokenizer, Decode_InvertsEncodeAndShowsBrokenCharacters) {
  const ByteTokenizer tokenizer;
  const std::string text = "In the beginning \xE2\x80\x94 \xF0\x9F\x8C\x8D";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  const std::vector<int32_t> broken = {'a', 0xE2, 0x80, 'b', 0xFF};
  EXPECT_EQ(tokenizer.decode(broken), "a" + kReplaced + "b" + kReplaced);
}

// A model may have more rows than its tokenizer has tokens.
TEST(ByteTokenizer, TokenOutsideTheVocabulary_AddsNothing) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 256, -1, 'b'}), "ab");
}

TEST(StreamingDecoder, ShowsACharacterWhenItIsComplete) {
  const ByteTokenizer tokenizer;
  StreamingDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push('x'), "x");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push(0xA9), "\xC3\xA9");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.finish(), kReplaced);
  EXPECT_EQ(decoder.finish(), "");
}

std::vector<int32_t> bytes_of(const std::string& text) { return ByteTokenizer().encode(text); }

TEST(StopStrings, EndAtTheTokenThatCompletesOne) {
  const ByteTokenizer tokenizer;
  const StopStrings stops(tokenizer, {"\n\n", "END"});
  EXPECT_FALSE(stops.end({}));
  EXPECT_FALSE(stops.end(bytes_of("EN")));
  EXPECT_TRUE(stops.end(bytes_of("an END")));
  EXPECT_FALSE(stops.end(bytes_of("an END.")));  // it ended a token earlier
  EXPECT_FALSE(stops.end(bytes_of("a\n")));
  EXPECT_TRUE(stops.end(bytes_of("a\n\n")));
  EXPECT_EQ(stops.before("a\n\nb END"), "a");
  EXPECT_EQ(stops.before("nothing"), "nothing");
  EXPECT_EQ(files::message_of<ConfigError>([&] {
              StopStrings(tokenizer, {"x", ""});
            }),
            "a stop string is empty: every text has it at its end");
}

// A token of several characters may end behind the stop string.
TEST(StopStrings, MayLieInsideAToken) {
  const auto tokenizer = load_tokenizer("tests/reference/tokenizers/gpt2.json");
  const std::vector<int32_t> tokens = tokenizer->encode("and the");
  const StopStrings stops(*tokenizer, {"d t"});
  EXPECT_TRUE(stops.end(tokens));
  EXPECT_FALSE(stops.end(std::span(tokens).first(1)));
  // One that ended a token earlier is none of the last token's.
  EXPECT_FALSE(StopStrings(*tokenizer, {"he"}).end(tokenizer->encode("and the o")));
}

TEST(AnswerStream, HoldsBackWhatMayBecomeAStopString) {
  const ByteTokenizer tokenizer;
  const StopStrings stops(tokenizer, {"User:"});
  AnswerStream stream(tokenizer, stops, true);
  std::string shown;
  std::vector<size_t> lengths;
  for (const int32_t token : bytes_of("a Use, User: no")) {
    shown += stream.push(token);
    lengths.push_back(shown.size());
  }
  EXPECT_EQ(shown + stream.finish(), "a Use, ");
  EXPECT_EQ(lengths, (std::vector<size_t>{1, 2, 2, 2, 2, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7}));
  AnswerStream other(tokenizer, stops, true);
  EXPECT_EQ(other.push('U'), "");
  EXPECT_EQ(other.finish(), "U");
}

TEST(RequireInVocabulary, NamesTheFirstTokenOutside) {
  const std::vector<int32_t> prompt = {1, 99, 100, 101};
  require_in_vocabulary("the prompt", prompt, 102);
  EXPECT_EQ(files::message_of<DataError>([&] { require_in_vocabulary("the prompt", prompt, 100); }),
            "the prompt: token 100 at position 2 is outside the vocabulary of 100 tokens");
}

}  // namespace text_test
}  // namespace zinc::text
