#include "train/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/error.h"
#include "tests/train/scratch_folder.h"

namespace zinc::train {
namespace sampling_test {

using testing::ElementsAre;
constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<int> counts_of(const std::vector<float>& logits, const SamplingOptions& options,
                           int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int64_t i = 0; i < draws; ++i) {
    ++counts[static_cast<size_t>(sample_token(logits, options, sampling_key(7, i)))];
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
  // Of equal logits the lower token is the more likely one.
  EXPECT_THAT(counts_of(logits, {.top_k = 1}, 100), ElementsAre(0, 100, 0, 0));
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
  // Probabilities 0.4, 0.3, 0.3; of the first two, the first has 4/7 >= 0.5.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.3f)};
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
    const int32_t token = sample_token(logits, {}, sampling_key(1, i));
    EXPECT_EQ(token, sample_token(logits, {}, sampling_key(1, i)));
    tokens.insert(token);
  }
  EXPECT_GT(tokens.size(), 80U);  // 100 draws of 1000: 95 different ones on average
  EXPECT_NE(sample_token(logits, {}, sampling_key(1, 0)),
            sample_token(logits, {}, sampling_key(2, 0)));
}

TEST(SampleToken, ExtremeLogits_StayFinite) {
  const std::vector<float> logits = {3e38f, -3e38f, 3e38f};
  const std::vector<int> counts = counts_of(logits, {.top_p = 0.99}, 1000);
  EXPECT_GT(counts[0], 400);
  EXPECT_GT(counts[2], 400);
  EXPECT_EQ(counts[1], 0);
}

TEST(SampleToken, NothingToChoose_IsAnError) {
  const auto message = [](const std::vector<float>& logits) {
    return message_of<InvalidArgument>([&] { sample_token(logits, {}, sampling_key(0, 0)); });
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
    return message_of<ConfigError>([&] { validate(options); });
  };
  EXPECT_EQ(message({}), "(no error)");
  EXPECT_EQ(message({.temperature = -0.5}),
            "sampling: temperature must be a number >= 0, not -0.5");
  EXPECT_EQ(message({.top_k = -1}), "sampling: top_k must be >= 0, not -1");
  EXPECT_EQ(message({.top_p = 1.5}), "sampling: top_p must lie in [0, 1], not 1.5");
}

}  // namespace sampling_test
}  // namespace zinc::train
