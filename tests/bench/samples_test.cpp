#include "bench/samples.h"

#include <gtest/gtest.h>

namespace zinc::bench {
namespace samples_test {

TEST(Samples, QuantilesLieBetweenTheNearestValues) {
  EXPECT_EQ(quantile({}, 0.5), 0.0);
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({5.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 8.0, 2.0}), 3.0);
  EXPECT_EQ(quantile({4.0, 1.0, 8.0, 2.0}, 0.0), 1.0);
  EXPECT_EQ(quantile({4.0, 1.0, 8.0, 2.0}, 1.0), 8.0);
  EXPECT_EQ(quantile({4.0, 1.0, 8.0, 2.0}, 0.25), 1.75);
}

TEST(Samples, NoiseIsHalfTheInterquartileRangeOverTheMedian) {
  Samples samples;
  EXPECT_EQ(samples.noise(), 0.0);
  for (const double value : {8.0, 1.0, 4.0, 2.0}) samples.add(value);
  EXPECT_EQ(samples.median(), 3.0);
  EXPECT_EQ(samples.minimum(), 1.0);
  EXPECT_DOUBLE_EQ(samples.noise(), 0.5 * (5.0 - 1.75) / 3.0);
}

}  // namespace samples_test
}  // namespace zinc::bench
