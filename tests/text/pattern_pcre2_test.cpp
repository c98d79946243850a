// The matchers of our own against PCRE2 with the same patterns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace pattern_pcre2_test {

using ::testing::HasSubstr;
using Matches = std::vector<std::pair<size_t, size_t>>;

Matches matches_of(const Pattern& pattern, const std::string& text) {
  Matches matches;
  pattern.for_each_match(text, [&](size_t begin, size_t end) { matches.emplace_back(begin, end); });
  return matches;
}

// Characters that Unicode 9.0 has: PCRE2's tables and zinc's agree on them.
std::string random_text(std::mt19937& random) {
  static constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x20, 0x7E},     {0x9, 0xD},       {0x20, 0x22},      {0x27, 0x28},
      {0x80, 0x24F},    {0x370, 0x5FF},   {0x900, 0x97F},    {0x2000, 0x206F},
      {0x3000, 0x30FF}, {0x4E00, 0x4EFF}, {0x1F600, 0x1F640}};
  static constexpr std::string_view kWords[] = {"'s",   "'LL", "'\xC5\xBF", " 12345",
                                                "\r\n", "  ",  "'re"};
  std::string text;
  for (int n = static_cast<int>(random() % 24); n > 0; --n) {
    if (random() % 6 == 0) {
      text += kWords[random() % std::size(kWords)];
      continue;
    }
    const auto& [first, last] = kBlocks[random() % std::size(kBlocks)];
    const char32_t c = first + static_cast<char32_t>(random() % (last - first + 1));
    if (!CharacterTable::get().is(c, kYounger)) append_utf8(text, c);
  }
  return text;
}

class OwnMatcher : public ::testing::TestWithParam<std::pair<const char*, std::string_view>> {};

TEST_P(OwnMatcher, FindsWhatPcre2Finds) {
  const std::string regex(GetParam().second);
  const auto own = make_pattern(regex);
  // PCRE2 refuses the class inside a class; this is what it means.
  const auto general =
      make_general_pattern(regex == kBloomPattern ? R"( ?[^()|\s.,!?…。，、।۔،]+)" : regex);
  std::mt19937 random(20);
  for (int i = 0; i < 30'000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(matches_of(*own, text), matches_of(*general, text)) << testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OwnMatcher,
                         ::testing::Values(std::pair{"gpt2", kGpt2Pattern},
                                           std::pair{"llama3", kLlama3Pattern},
                                           std::pair{"qwen2", kQwen2Pattern},
                                           std::pair{"bloom", kBloomPattern}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(GeneralPattern, ThatBlowsUp_StopsAtTheLimit) {
  const auto pattern = make_general_pattern("(a+)+$");
  const std::string text = std::string(60, 'a') + "b";
  EXPECT_THAT(files::message_of<DataError>([&] { matches_of(*pattern, text); }),
              HasSubstr("the pattern (a+)+$ gives up on the text behind byte 0: match limit"));
}

// Oniguruma's iterator gives these: not where the match before ended.
TEST(GeneralPattern, EmptyMatches_AreVisitedOnce) {
  const auto pattern = make_general_pattern("x*");
  EXPECT_EQ(matches_of(*pattern, "a\xC3\xA9xx"), (Matches{{0, 0}, {1, 1}, {3, 5}}));
  EXPECT_EQ(matches_of(*make_general_pattern(R"(\b)"), "ab c"),
            (Matches{{0, 0}, {2, 2}, {3, 3}, {4, 4}}));
  EXPECT_EQ(matches_of(*make_general_pattern(R"((?=(\d{3})+(?!\d)))"), "1234567"),
            (Matches{{1, 1}, {4, 4}}));
}

TEST(GeneralPattern, EmptyMatches_CutPiecesAndTakeReplacements) {
  for (const char* behavior :
       {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"}) {
    files::json::Object pattern;
    pattern.set("Regex", R"((?=(\d{3})+(?!\d)))");
    files::json::Object split;
    split.set("type", "Split");
    split.set("pattern", std::move(pattern));
    split.set("behavior", behavior);
    const files::json::Value part(std::move(split));
    std::vector<std::string> pieces;
    PreTokenizer::parse(&part).run({.text = "x1234567", .of_first = 1},
                                   [&](PreToken piece) { pieces.emplace_back(piece.text); });
    EXPECT_THAT(pieces, testing::ElementsAre("x1", "234", "567")) << behavior;
  }
  files::json::Object pattern;
  pattern.set("Regex", R"((?<=\d)(?=\d))");
  files::json::Object replace;
  replace.set("type", "Replace");
  replace.set("pattern", std::move(pattern));
  replace.set("content", "-");
  const files::json::Value part(std::move(replace));
  EXPECT_EQ(Normalizer::parse(&part).apply("123 4"), "1-2-3 4");
}

TEST(GeneralPattern, PosixClasses_HaveTheMembersOfUnicode) {
  const auto whole = [](const char* regex, const std::string& text) {
    return matches_of(*make_general_pattern(regex), text) == Matches{{0, text.size()}};
  };
  // A letter number, a vowel sign.
  EXPECT_TRUE(whole("[[:alpha:]]+", "a\xC3\xA9\xE2\x85\xA3\xE0\xA4\xBE"));
  EXPECT_FALSE(whole("[[:alpha:]]+", "a1"));
  EXPECT_TRUE(whole("[[:alnum:]]+", "a1\xD9\xA1"));
  EXPECT_FALSE(whole("[[:alnum:]]+", "\xC2\xB2"));  // a superscript is no decimal digit
  EXPECT_TRUE(whole("[[:upper:]][[:lower:]]+", "\xC3\x89\xC3\xA9z"));
  EXPECT_TRUE(whole("[[:word:][:blank:]]+", "a_1 \t"));
}

TEST(GeneralPattern, MongolianVowelSeparator_IsNoSpace) {
  EXPECT_TRUE(matches_of(*make_general_pattern("\\s"), "\xE1\xA0\x8E").empty());
  EXPECT_EQ(matches_of(*make_general_pattern("[^\\sa]"), "\xE1\xA0\x8E").size(), 1U);
}

// A letter and a digit of Unicode 16.
TEST(GeneralPattern, CharactersYoungerThanPcre2_AreOfTheirCategory) {
  std::string letter, digit;
  append_utf8(letter, 0x105C0);
  append_utf8(digit, 0x10D40);
  const std::string text = letter + digit + "a";
  const size_t n = letter.size();
  ASSERT_EQ(digit.size(), n);
  const auto matches = [&](const char* regex) {
    return matches_of(*make_general_pattern(regex), text);
  };
  EXPECT_EQ(matches(R"(\p{L})"), (Matches{{0, n}, {2 * n, 2 * n + 1}}));
  EXPECT_EQ(matches(R"([\p{Lo}\p{N}]+)"), (Matches{{0, 2 * n}}));
  EXPECT_EQ(matches(R"([^\p{L}])"), (Matches{{n, 2 * n}}));
  EXPECT_EQ(matches(R"(\P{L}+)"), (Matches{{n, 2 * n}}));
  EXPECT_EQ(matches(R"(\p{Nd}\p{Ll})"), (Matches{{n, 2 * n + 1}}));
}

TEST(GeneralPattern, WhatMeansSomethingElseToPcre2_IsRefused) {
  const auto message = [](const char* regex) {
    return files::message_of<DataError>([&] { make_general_pattern(regex); });
  };
  EXPECT_THAT(message("[a[bc]]"), HasSubstr("at byte 2: a class inside a class is not supported"));
  EXPECT_THAT(message("[a-z&&[^b]]"), HasSubstr("an intersection of classes is not supported"));
  EXPECT_THAT(message("\\h+"), HasSubstr("\\h is not supported there"));
  EXPECT_THAT(message("(a"), HasSubstr("missing closing parenthesis"));
  EXPECT_THAT(message("[a[:graph:]]"), HasSubstr("at byte 2: [:graph:] is not supported"));
  EXPECT_THAT(message("[\\W]"), HasSubstr("\\W is not supported there"));
  EXPECT_THAT(message("\\p{N}{1,3}+"), HasSubstr("at byte 5: {1,3}+ is not supported"));
  EXPECT_THAT(message("a{,2}"), HasSubstr("{,2} is not supported"));
  EXPECT_THAT(message("(?im:a)"), HasSubstr("(?m) is not supported"));
  EXPECT_EQ(message("[[:punct:]_]+[]a](?i:b)(?<!c)d{2}?{"), "(no error)");
}

// The results of Hugging Face's Split.
TEST(GeneralPattern, MeansWhatItMeansToOniguruma) {
  const auto matches = [](const char* regex, const std::string& text) {
    return matches_of(*make_general_pattern(regex), text);
  };
  EXPECT_EQ(matches("^a", "ba\na"), (Matches{{3, 4}}));
  EXPECT_EQ(matches("a$", "a\nb a"), (Matches{{0, 1}, {4, 5}}));
  EXPECT_EQ(matches("\\bfoo\\b", "a foo b"), (Matches{{2, 5}}));
  EXPECT_EQ(matches("o\\B", "foo"), (Matches{{1, 2}}));
  EXPECT_EQ(matches("\\d+", "a12"), (Matches{{1, 3}}));
  // A superscript, a combining mark, an undertie: parts of words.
  EXPECT_EQ(matches("\\w+", "\xC2\xB2\xCC\x81\xE2\x80\xBF-"), (Matches{{0, 7}}));
  EXPECT_EQ(matches("[^\\w]", "\xC2\xB2-"), (Matches{{2, 3}}));
  EXPECT_EQ(matches("[[:punct:]]+", "a$\xE2\x82\xAC!"), (Matches{{1, 6}}));
}

}  // namespace pattern_pcre2_test
}  // namespace zinc::text
