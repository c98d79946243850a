#include "generate/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "tests/files/scratch_folder.h"

namespace zinc::generate {
namespace sampling_test {

using testing::ElementsAre;
constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<int> counts_of(const std::vector<float>& logits, const SamplingOptions& options,
                           int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int64_t i = 0; i < draws; ++i) {
    ++counts[static_cast<size_t>(sample_token(logits, {}, options, sampling_key(7, i)))];
  }
  return counts;
}

// Every count within six standard deviations of a binomial (probability 2e-9 each).
void expect_frequencies(const std::vector<int>& counts, const std::vector<double>& probabilities,
                        int draws) {
  for (size_t i = 0; i < counts.size(); ++i) {
    const double p = probabilities[i];
    EXPECT_NEAR(counts[i], draws * p, 6 * std::sqrt(draws * p * (1 - p))) << "token " << i;
  }
}

TEST(SampleToken, Frequencies_AreTheSoftmax) {
  constexpr int kDraws = 100000;
  const std::vector<float> logits = {1.0f, kNone, 2.0f, 0.0f, 3.0f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> probabilities;
    double total = 0.0;
    for (const float logit : logits) {
      probabilities.push_back(std::exp(static_cast<double>(logit) / temperature));
      total += probabilities.back();
    }
    for (double& p : probabilities) p /= total;
    expect_frequencies(counts_of(logits, {.temperature = temperature}, kDraws), probabilities,
                       kDraws);
  }
}

TEST(SampleToken, TopK_KeepsTheMostLikely) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, 2.0f};
  const double e = std::exp(1.0);
  expect_frequencies(counts_of(logits, {.top_k = 3}, kDraws),
                     {0.0, e / (2 * e + 1), 1 / (2 * e + 1), e / (2 * e + 1)}, kDraws);
  // Tokens that are equal to the last one stay.
  EXPECT_GT(counts_of(logits, {.top_k = 1}, 100)[1], 20);
  EXPECT_GT(counts_of(logits, {.top_k = 1}, 100)[3], 20);
  EXPECT_EQ(counts_of(logits, {.top_k = 100}, 100), counts_of(logits, {}, 100));
}

TEST(SampleToken, TopP_KeepsTheFewestThatReachIt) {
  constexpr int kDraws = 20000;
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const float l2 = std::log(2.0f);
  const std::vector<float> logits = {3 * l2, 2 * l2, l2, l2};
  expect_frequencies(counts_of(logits, {.top_p = 0.6}, kDraws), {2.0 / 3, 1.0 / 3, 0.0, 0.0},
                     kDraws);
  expect_frequencies(counts_of(logits, {.top_p = 0.8}, kDraws), {4.0 / 7, 2.0 / 7, 1.0 / 7, 0.0},
                     kDraws);
  EXPECT_THAT(counts_of(logits, {.top_p = 0.0}, 100), ElementsAre(100, 0, 0, 0));
  EXPECT_THAT(counts_of(logits, {.top_p = 1e-12}, 100), ElementsAre(100, 0, 0, 0));
}

TEST(SampleToken, TopP_IsTakenOfWhatTopKLeft) {
  // Probabilities 0.4, 0.32, 0.28; of the first two, the first has 4/7.2 >= 0.5.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.32f), std::log(0.28f)};
  EXPECT_THAT(counts_of(logits, {.top_k = 2, .top_p = 0.5}, 200), ElementsAre(200, 0, 0));
  EXPECT_THAT(counts_of(logits, {.top_p = 0.5}, 2000), testing::Contains(testing::Gt(700)));
  EXPECT_GT(counts_of(logits, {.top_p = 0.5}, 2000)[1], 0);
}

TEST(SampleToken, TemperatureZero_IsTheFirstOfTheLargest) {
  const std::vector<float> logits = {-1.0f, 5.0f, 5.0f, 4.999f};
  EXPECT_THAT(counts_of(logits, {.temperature = 0.0}, 50), ElementsAre(0, 50, 0, 0));
  // A temperature that overflows the quotient still chooses among the largest.
  const std::vector<int> cold = counts_of(logits, {.temperature = 1e-320}, 1000);
  EXPECT_GT(cold[1], 400);
  EXPECT_GT(cold[2], 400);
  EXPECT_EQ(cold[0] + cold[3], 0);
}

TEST(SampleToken, SamePlaceSameToken_OtherPlaceAnother) {
  const std::vector<float> logits(1000, 0.0f);
  std::set<int32_t> tokens;
  for (int64_t i = 0; i < 100; ++i) {
    const int32_t token = sample_token(logits, {}, {}, sampling_key(1, i));
    EXPECT_EQ(token, sample_token(logits, {}, {}, sampling_key(1, i)));
    tokens.insert(token);
  }
  EXPECT_GT(tokens.size(), 80U);  // 100 draws of 1000: 95 different ones on average
  EXPECT_NE(sample_token(logits, {}, {}, sampling_key(1, 0)),
            sample_token(logits, {}, {}, sampling_key(2, 0)));
}

TEST(SampleToken, ExtremeLogits_StayFinite) {
  const std::vector<float> logits = {3e38f, -3e38f, 3e38f};
  const std::vector<int> counts = counts_of(logits, {.top_p = 0.99}, 1000);
  EXPECT_GT(counts[0], 400);
  EXPECT_GT(counts[2], 400);
  EXPECT_EQ(counts[1], 0);
}

SamplingOptions options_of(const files::json::Value& given) {
  SamplingOptions options;
  for (const files::json::Member& member : given.as_object()) {
    const std::string& name = member.key;
    const double value = member.value.as_double();
    if (name == "repetition_penalty")
      options.repetition_penalty = value;
    else if (name == "no_repeat_ngram_size")
      options.no_repeat_ngram_size = static_cast<int64_t>(value);
    else if (name == "temperature")
      options.temperature = value;
    else if (name == "top_k")
      options.top_k = static_cast<int64_t>(value);
    else if (name == "top_p")
      options.top_p = value;
    else if (name == "min_p")
      options.min_p = value;
    else if (name == "typical_p")
      options.typical_p = value;
    else
      ADD_FAILURE() << name;
  }
  return options;
}

template <class T>
std::vector<T> numbers(const files::json::Value& list, double divisor = 1.0) {
  std::vector<T> values;
  for (const files::json::Value& item : list.as_array()) {
    values.push_back(static_cast<T>(item.as_double() / divisor));
  }
  return values;
}

// Each filter alone, and any of them together, in transformers' order.
TEST(KeptTokens, AreThoseOfTransformers) {
  const files::json::Value reference = files::json::parse_file("tests/reference/kept_tokens.json");
  const files::json::Array& cases = reference.at("cases").as_array();
  ASSERT_EQ(cases.size(), 240U);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto of = [&](const char* list, const char* index) -> const files::json::Value& {
      return reference.at(list).at(static_cast<size_t>(cases[i].at(index).as_int64()));
    };
    const std::vector<Candidate> candidates =
        kept_tokens(numbers<float>(of("rows", "logits"), 1024.0),
                    numbers<int32_t>(of("texts", "text")), options_of(cases[i].at("options")));
    std::vector<int32_t> kept;
    for (const Candidate& candidate : candidates) kept.push_back(candidate.token);
    const auto name = [&] {
      return str("case ", i, ": ", files::json::write(cases[i].at("options")));
    };
    ASSERT_EQ(kept, numbers<int32_t>(cases[i].at("kept"))) << name();
    const std::vector<double> expected = numbers<double>(cases[i].at("probabilities"));
    for (size_t k = 0; k < kept.size(); ++k) {
      // Twelve digits are stored.
      EXPECT_NEAR(candidates[k].probability, expected[k], 1e-11) << name() << ", token " << kept[k];
    }
  }
}

TEST(KeptTokens, WhereTheTextLeavesNone_SayIt) {
  const std::vector<float> logits(3, 1.0f);
  EXPECT_EQ(files::message_of<InvalidArgument>([&] {
              kept_tokens(logits, std::vector<int32_t>{2, 0, 1}, {.no_repeat_ngram_size = 1});
            }),
            "sampling: every one of 3 tokens is excluded");
}

TEST(SampleToken, NothingToChoose_IsAnError) {
  const auto message = [](const std::vector<float>& logits) {
    return files::message_of<InvalidArgument>(
        [&] { sample_token(logits, {}, {}, sampling_key(0, 0)); });
  };
  EXPECT_EQ(message({kNone, kNone}), "sampling: every one of 2 tokens is excluded");
  EXPECT_EQ(message({}), "sampling: every one of 0 tokens is excluded");
  EXPECT_EQ(message({0.0f, std::nanf("")}),
            "sampling: the logit of token 1 is nan: the model's weights or activations have "
            "overflowed");
  EXPECT_EQ(message({-kNone}),
            "sampling: the logit of token 0 is inf: the model's weights or activations have "
            "overflowed");
}

TEST(SamplingOptions, OutOfRange_IsAConfigError) {
  const auto message = [](const SamplingOptions& options) {
    return files::message_of<ConfigError>([&] { validate(options); });
  };
  EXPECT_EQ(message({}), "(no error)");
  EXPECT_EQ(message({.temperature = -0.5}),
            "sampling: temperature must be a number >= 0, not -0.5");
  EXPECT_EQ(message({.top_k = -1}), "sampling: top_k must be >= 0, not -1");
  EXPECT_EQ(message({.top_p = 1.5}), "sampling: top_p must lie in [0, 1], not 1.5");
  EXPECT_EQ(message({.min_p = -0.1}), "sampling: min_p must lie in [0, 1], not -0.1");
  EXPECT_EQ(message({.typical_p = 0.0}), "sampling: typical_p must lie in (0, 1], not 0");
  EXPECT_EQ(message({.repetition_penalty = 0.0}),
            "sampling: repetition_penalty must be a number > 0, not 0");
  EXPECT_EQ(message({.no_repeat_ngram_size = -1}),
            "sampling: no_repeat_ngram_size must be >= 0, not -1");
}

}  // namespace sampling_test
}  // namespace zinc::generate
