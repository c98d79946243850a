// The choice of the best evaluation, and the end of a run that finds no better one.
#include "train/best_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace zinc::train {
namespace best_model_test {

using testing::AllOf;
using testing::HasSubstr;

std::string refused(const std::string& metric) {
  try {
    const BestModel best({.metric = metric}, {"dev", "test"});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BestModel, TheSmallestFiniteFigureIsTheBest) {
  BestModel best({}, {""});
  EXPECT_TRUE(best.take(10, 3.0));
  EXPECT_FALSE(best.take(20, 3.0));
  EXPECT_FALSE(best.take(30, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(best.take(40, -std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(best.take(50, 2.5));
  EXPECT_EQ(best.so_far().step, 50);
  EXPECT_EQ(best.so_far().value, 2.5);
}

TEST(BestModel, TheGreatest_WhereThatIsBetter) {
  BestModel best({.greater_is_better = true}, {""});
  EXPECT_TRUE(best.take(1, 1.0));
  EXPECT_FALSE(best.take(2, 0.5));
  EXPECT_TRUE(best.take(3, 1.5));
}

TEST(BestModel, NamesOfMetrics_AreOfSetsToo) {
  EXPECT_EQ(BestModel({}, {"dev", "test"}).set(), 0U);
  EXPECT_EQ(BestModel({.metric = "test/loss"}, {"dev", "test"}).set(), 1U);
  EXPECT_EQ(BestModel({.metric = "eval_test/loss"}, {"dev", "test"}).set(), 1U);
  const BestModel perplexity({.metric = "test/perplexity"}, {"dev", "test"});
  EXPECT_EQ(perplexity.set(), 1U);
  EXPECT_EQ(perplexity.value_of(2.0), std::exp(2.0));
  EXPECT_THAT(refused("tst/loss"),
              AllOf(HasSubstr("did you mean 'test/loss'?"), HasSubstr("dev/perplexity")));
  EXPECT_THAT(refused("bleurt"), AllOf(HasSubstr("'bleurt'"), HasSubstr("there are loss, ")));
}

// transformers' EarlyStoppingCallback: what is better by no more than the threshold is the best,
// and no improvement.
TEST(BestModel, PatienceCountsEvaluationsWithoutAnImprovement) {
  BestModel best({.patience = 2, .threshold = 0.1}, {""});
  best.take(1, 5.0);
  EXPECT_TRUE(best.take(2, 4.95));
  EXPECT_EQ(best.so_far().without_improvement, 1);
  best.take(3, 4.8);
  EXPECT_EQ(best.so_far().without_improvement, 0);
  best.take(4, 4.9);
  EXPECT_FALSE(best.is_time_to_stop());
  best.take(5, 4.75);
  EXPECT_TRUE(best.is_time_to_stop());
}

TEST(BestModel, GoesOnFromWhatACheckpointSays_OfTheSameFigure) {
  const BestSoFar before{
      .metric = "loss", .samples = 20, .value = 2.0, .step = 7, .without_improvement = 1};
  BestModel same({.patience = 2}, {""});
  EXPECT_TRUE(same.go_on_from(before, 20));
  EXPECT_FALSE(same.take(8, 2.1));
  EXPECT_TRUE(same.is_time_to_stop());
  const auto begins_anew = [&](BestModelOptions options, int64_t samples) {
    options.patience = 2;
    BestModel other(options, {""});
    EXPECT_FALSE(other.go_on_from(before, samples));
    EXPECT_EQ(other.so_far().samples, samples);
    EXPECT_TRUE(other.take(8, 2.1));
  };
  begins_anew({.metric = "perplexity"}, 20);
  begins_anew({.greater_is_better = true}, 20);
  begins_anew({}, 24);
}

}  // namespace best_model_test
}  // namespace zinc::train
