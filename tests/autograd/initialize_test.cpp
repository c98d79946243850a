#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/parameter.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace initialize_test {

template <class T = double>
std::vector<T> initialized(const Initializer& initializer, int64_t n, int64_t begin = 0,
                           uint64_t seed = 1, std::string_view name = "w") {
  std::vector<T> values(static_cast<size_t>(n));
  initialize_range(initializer, seed, name, begin, View(values.data(), kDTypeOf<T>, Shape{n}));
  return values;
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// Kolmogorov-Smirnov: the largest distance between the empirical and the given distribution
// function. For n samples it exceeds 2.2 / sqrt(n) with probability 2 exp(-2 * 2.2^2) = 1.2e-4; the
// seed is fixed, so a pass stays a pass.
void expect_distribution(std::vector<double> samples, const std::function<double(double)>& cdf) {
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  double distance = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double f = cdf(samples[i]);
    distance =
        std::max({distance, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  EXPECT_LT(distance, 2.2 / std::sqrt(n));
}

constexpr int64_t kSamples = 200000;

TEST(Initialize, Normal_HasTheNormalDistribution) {
  expect_distribution(initialized(Initializer::normal(0.02, 1.0), kSamples),
                      [](double x) { return normal_cdf((x - 1.0) / 0.02); });
}

TEST(Initialize, Normal_TailsReachTheirQuantiles) {
  auto values = initialized(Initializer::normal(1.0), 1000000);
  const auto beyond =
      std::count_if(values.begin(), values.end(), [](double z) { return std::abs(z) > 4; });
  // Expected 63.3 of a million, standard deviation 8: within 5 of them.
  EXPECT_GT(beyond, 23);
  EXPECT_LT(beyond, 104);
}

// The inverse is checked through the function: z -> F(z) is the uniform number it came from.
TEST(Initialize, Normal_IsTheInverseDistributionFunctionOfItsBits) {
  const uint64_t seed = 1;
  const RandomKey key = make_random_key(seed, Purpose::initialize, 0, 0, hash_text("w"));
  const auto values = initialized(Initializer::normal(1.0), 20000);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = key.bits(2 * i) | (uint64_t{key.bits(2 * i + 1)} << 32);
    const double u = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
    // F has slope <= 0.4 |z|-relative condition <= 20 in the range hit: 1e-13 leaves room for it.
    EXPECT_NEAR(normal_cdf(values[i]) / u, 1.0, 1e-13) << i;
  }
}

TEST(Initialize, TruncatedNormal_IsCutAtTwoDeviations) {
  const auto values = initialized(Initializer::truncated_normal(0.5, -1.0), kSamples);
  const double low = normal_cdf(-2);
  for (const double x : values) {
    ASSERT_GE(x, -2.0);
    ASSERT_LE(x, 0.0);
  }
  expect_distribution(
      values, [low](double x) { return (normal_cdf((x + 1.0) / 0.5) - low) / (1 - 2 * low); });
}

TEST(Initialize, Uniform_HasTheUniformDistribution) {
  const auto values = initialized(Initializer::uniform(-3, 5), kSamples);
  expect_distribution(values, [](double x) { return (x + 3) / 8; });
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -3.0);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 5.0);
}

TEST(Initialize, Constant_IsTheValue) {
  for (const double value : initialized(Initializer::ones(), 17)) EXPECT_EQ(value, 1.0);
  for (const double value : initialized(Initializer::zeros(), 17)) EXPECT_EQ(value, 0.0);
}

TEST(Initialize, AnyShard_IsPartOfTheWhole) {
  for (const Initializer& initializer :
       {Initializer::normal(0.02), Initializer::truncated_normal(0.02),
        Initializer::uniform(0, 1)}) {
    const auto whole = initialized(initializer, 70000);
    for (const int64_t begin : {0, 1, 2, 16383, 16384, 40001}) {
      const int64_t n = std::min<int64_t>(20001, 70000 - begin);
      const auto part = initialized(initializer, n, begin);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
    }
  }
}

TEST(Initialize, DependsOnSeedAndNameOnly) {
  const Initializer normal = Initializer::normal(1.0);
  const auto values = initialized(normal, 64, 0, 1, "a");
  EXPECT_EQ(initialized(normal, 64, 0, 1, "a"), values);
  EXPECT_NE(initialized(normal, 64, 0, 2, "a"), values);
  EXPECT_NE(initialized(normal, 64, 0, 1, "b"), values);
}

TEST(Initialize, ThreadCount_DoesNotMatter) {
  const auto run = [](int threads) {
    const testing::Rank rank({.num_threads = threads});
    return initialized(Initializer::normal(1.0), 100003);
  };
  EXPECT_EQ(run(1), run(4));
}

// Stored so that no change to the algorithm or to the machine passes unseen. Computed with Python's
// statistics.NormalDist().inv_cdf on the bits of an independent Philox.
TEST(Initialize, SixteenBits_AreTheRoundedF64Values) {
  const auto exact = initialized(Initializer::normal(0.02), 4096);
  const auto narrow = initialized<bf16>(Initializer::normal(0.02), 4096);
  const auto half = initialized<f16>(Initializer::normal(0.02), 4096);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(narrow[i].bits, bf16(round_to_odd(exact[i])).bits);
    EXPECT_EQ(half[i].bits, f16(round_to_odd(exact[i])).bits);
  }
}

}  // namespace initialize_test
}  // namespace zinc::autograd
