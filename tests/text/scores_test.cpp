// Scores of generated text and of labels against the Python packages' on the same: the file that
// tests/reference/make_scores.py wrote.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "text/scores/bleu.h"
#include "text/scores/labels.h"
#include "text/scores/porter_stemmer.h"
#include "text/scores/rouge.h"
#include "text/scores/score_pairs.h"

namespace zinc::text {
namespace scores_test {

constexpr double kTolerance = 1e-9;  // both compute in f64, in another order

const files::json::Value& expected() {
  static const files::json::Value value = files::json::parse_file("tests/reference/scores.json");
  return value;
}

const std::string& text(size_t pair, size_t side) {
  return expected().at("pairs").at(pair).at(side).as_string();
}
size_t num_pairs() { return expected().at("pairs").as_array().size(); }

void expect_near(const RougeScore& score, const files::json::Value& wanted) {
  EXPECT_NEAR(score.precision, wanted.at(size_t{0}).as_double(), kTolerance);
  EXPECT_NEAR(score.recall, wanted.at(size_t{1}).as_double(), kTolerance);
  EXPECT_NEAR(score.f, wanted.at(size_t{2}).as_double(), kTolerance);
}

void expect_rouge(const char* name, RougeWords words) {
  ASSERT_EQ(num_pairs(), 500u);
  for (size_t i = 0; i < num_pairs(); ++i) {
    SCOPED_TRACE(str("pair ", i, ": ", text(i, 0), " | ", text(i, 1)));
    const RougeScores scores = rouge(text(i, 0), text(i, 1), words);
    const files::json::Value& wanted = expected().at("rouge").at(name).at(i);
    expect_near(scores.rouge1, wanted.at(size_t{0}));
    expect_near(scores.rouge2, wanted.at(size_t{1}));
    expect_near(scores.rouge_l, wanted.at(size_t{2}));
    expect_near(scores.rouge_lsum, wanted.at(size_t{3}));
  }
}

TEST(Rouge, OfWords_IsThatOfRougeScore) { expect_rouge("plain", RougeWords::plain); }
TEST(Rouge, OfStemmedWords_IsThatOfRougeScore) { expect_rouge("stemmed", RougeWords::stemmed); }
TEST(Rouge, OfCharacters_IsThatOfRougeScore) { expect_rouge("characters", RougeWords::characters); }

TEST(PorterStemmer, StemsAreThoseOfNltk) {
  const files::json::Object& stems = expected().at("stems").as_object();
  EXPECT_GE(stems.size(), 1500u);
  for (const auto& member : stems) {
    EXPECT_EQ(porter_stem(member.key), member.value.as_string()) << member.key;
  }
}

void expect_bleu(const char* name, BleuWords words) {
  const files::json::Value& wanted = expected().at("bleu").at(name);
  Bleu corpus(words), with_two(words);
  for (size_t i = 0; i < num_pairs(); ++i) {
    SCOPED_TRACE(str("pair ", i));
    EXPECT_EQ(bleu_words(text(i, 1), words), wanted.at("words").at(i).as_string());
    Bleu single(words);
    single.add(text(i, 1), std::vector{text(i, 0)});
    EXPECT_NEAR(single.score(true).score, wanted.at("sentences").at(i).as_double(),
                100 * kTolerance);
    corpus.add(text(i, 1), std::vector{text(i, 0)});
    with_two.add(text(i, 1), std::vector{text(i, 0), text((i + 1) % num_pairs(), 0)});
  }
  EXPECT_NEAR(corpus.score().score, wanted.at("corpus").as_double(), 100 * kTolerance);
  EXPECT_NEAR(with_two.score().score, wanted.at("two_references").as_double(), 100 * kTolerance);
}

TEST(BleuScores, OfInternationalWords_AreThoseOfSacrebleu) {
  expect_bleu("13a", BleuWords::international);
}
TEST(BleuScores, OfChineseWords_AreThoseOfSacrebleu) { expect_bleu("zh", BleuWords::chinese); }

TEST(LabelScores, AreThoseOfScikitLearn) {
  for (const files::json::Value& row : expected().at("labels").as_array()) {
    std::vector<int64_t> real, predicted;
    for (const files::json::Value& label : row.at("real").as_array())
      real.push_back(label.as_int64());
    for (const files::json::Value& label : row.at("predicted").as_array()) {
      predicted.push_back(label.as_int64());
    }
    EXPECT_NEAR(f1_micro(real, predicted), row.at("micro").as_double(), kTolerance);
    EXPECT_NEAR(f1_micro(real, predicted), accuracy(real, predicted), kTolerance);
    EXPECT_NEAR(f1_macro(real, predicted), row.at("macro").as_double(), kTolerance);
    if (const files::json::Value* binary = row.find("binary")) {
      EXPECT_NEAR(f1_binary(real, predicted), binary->as_double(), kTolerance);
    }
  }
  EXPECT_EQ(exact_match(std::vector<std::string>{"a", "b "}, std::vector<std::string>{"a", "b"}),
            0.5);
  EXPECT_EQ(accuracy({}, {}), 0.0);
  EXPECT_THROW(accuracy(std::vector<int64_t>{1}, {}), InvalidArgument);
}

std::vector<TextPair> stored_pairs() {
  std::vector<TextPair> pairs;
  for (size_t i = 0; i < num_pairs(); ++i) {
    pairs.push_back({.prediction = text(i, 1), .references = {text(i, 0)}});
  }
  return pairs;
}

TEST(ScoreOf, IsTheMeanOfPairsOrTheCorpus) {
  const std::vector<TextPair> pairs = stored_pairs();
  double sum = 0.0;
  for (size_t i = 0; i < num_pairs(); ++i) {
    sum += expected().at("rouge").at("plain").at(i).at(size_t{3}).at(size_t{2}).as_double();
  }
  EXPECT_NEAR(score_of("rougeLsum", pairs), sum / static_cast<double>(num_pairs()), kTolerance);
  EXPECT_NEAR(score_of("bleu", pairs), expected().at("bleu").at("13a").at("corpus").as_double(),
              100 * kTolerance);
  // The best one of several references counts.
  const std::vector<TextPair> two{{"a b c", {"x y z", "a b c"}}, {"a", {"b"}}};
  EXPECT_EQ(score_of("rouge1", two), 0.5);
  EXPECT_EQ(score_of("exact_match", two), 0.5);
  const std::vector<TextPair> labels{{"1", {"1"}}, {"0", {"1"}}, {"2", {"2"}}};
  EXPECT_NEAR(score_of("f1", labels), 2.0 / 3.0, kTolerance);
  EXPECT_NEAR(score_of("f1", labels, {.positive = "2"}), 1.0, kTolerance);
  EXPECT_NEAR(score_of("accuracy", labels), 2.0 / 3.0, kTolerance);
  EXPECT_THROW(score_of("rouge3", two), ConfigError);
  EXPECT_THROW(score_of("bleu", std::vector<TextPair>{{"a", {}}}), InvalidArgument);
}

TEST(ReadPairs, LinesOfTextsAndLabels_AndTheLineThatIsWrong) {
  const files::ScratchFolder folder;
  const auto read = [&](const std::string& content) {
    return read_pairs(folder.write("pairs.jsonl", content));
  };
  const auto pairs = read(
      "{\"prediction\": \"a\\nb\", \"reference\": \"c\"}\n\n"
      "{\"prediction\": 1, \"references\": [0, 1]}");
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].prediction, "a\nb");
  EXPECT_EQ(pairs[1].references, (std::vector<std::string>{"0", "1"}));
  for (const char* bad :
       {"{\"prediction\": \"a\"}", "[]", "{\"prediction\": \"a\", \"references\": []}",
        "{\"prediction\": null, \"reference\": \"c\"}", "{", "\xff"}) {
    try {
      read("{\"prediction\": \"a\", \"reference\": \"c\"}\n" + std::string(bad) + "\n");
      ADD_FAILURE() << bad;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("pairs.jsonl, line 2"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(read("\n"), DataError);
}

}  // namespace scores_test
}  // namespace zinc::text
