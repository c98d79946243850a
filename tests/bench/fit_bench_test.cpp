// `zinc bench fit` on models that are next to nothing: what it says of memory and of bytes is exact
// there too, what it says of times is not looked at.
#include "bench/fit_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace zinc::bench {
namespace fit_bench_test {

using testing::HasSubstr;

TEST(FitBench, EveryChoiceIsTimedBesideAllThatFit) {
  int phases = 0;
  const FitBenchResult result =
      run_fit_bench({.limits = 3, .rounds = 1, .global_batch = 2, .shrink = 4},
                    [&](const std::string&) { ++phases; });
  EXPECT_GT(phases, 0);
  ASSERT_EQ(result.models.size(), 2u);
  for (const FitBenchModel& model : result.models) {
    SCOPED_TRACE(model.name);
    EXPECT_GT(model.candidates, 10);
    ASSERT_EQ(model.rows.size(), 3u);
    for (const FitBenchRow& row : model.rows) {
      SCOPED_TRACE(row.words);
      EXPECT_TRUE(row.is_within()) << row.measured << " of " << row.limit;
      EXPECT_GE(row.ratio(), 1.0);
      EXPECT_TRUE(std::isfinite(row.seconds) && std::isfinite(row.predicted_seconds));
    }
    EXPECT_LT(model.rows.front().limit, model.rows.back().limit);
  }
  std::map<std::string, FillBenchRow> last;
  for (const FillBenchRow& row : result.fills) {
    SCOPED_TRACE(row.key + " " + std::to_string(row.share));
    EXPECT_EQ(row.measured, row.reserved);
    EXPECT_TRUE(std::isfinite(row.seconds));
    if (row.share > 0) {
      EXPECT_GE(row.reserved, last[row.key].reserved);
      EXPECT_LE(row.predicted_seconds, last[row.key].predicted_seconds);
    }
    last[row.key] = row;
  }
  EXPECT_EQ(last.size(), 4u);
  EXPECT_THAT(describe(result), HasSubstr("| chosen / best |"));
}

}  // namespace fit_bench_test
}  // namespace zinc::bench
