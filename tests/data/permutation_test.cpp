#include "data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace zinc::data {
namespace permutation_test {

RandomKey key_of(uint64_t seed, uint64_t epoch) {
  return make_random_key(seed, Purpose::data_order, epoch, 0, 0);
}

void expect_bijection(int64_t n, uint64_t seed) {
  const Permutation permutation(n, key_of(seed, 0));
  std::vector<bool> seen(static_cast<size_t>(n), false);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t image = permutation[i];
    ASSERT_TRUE(0 <= image && image < n) << image << " of " << n;
    ASSERT_FALSE(seen[static_cast<size_t>(image)]) << image << " twice, n " << n;
    seen[static_cast<size_t>(image)] = true;
  }
}

TEST(Permutation, EverySize_IsABijection) {
  for (int64_t n = 1; n <= 300; ++n) expect_bijection(n, static_cast<uint64_t>(n));
  for (const int64_t n : {int64_t{4095}, int64_t{4096}, int64_t{4097}, int64_t{100003}}) {
    expect_bijection(n, 1);
  }
}

TEST(Permutation, KeyDecides) {
  const Permutation a(1000, key_of(1, 0)), again(1000, key_of(1, 0));
  const Permutation epoch(1000, key_of(1, 1)), seed(1000, key_of(2, 0));
  int same_epoch = 0, same_seed = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a[i], again[i]);
    same_epoch += a[i] == epoch[i];
    same_seed += a[i] == seed[i];
  }
  // Two random permutations agree in one place on average, in more than 10 with probability 1e-8.
  EXPECT_LE(same_epoch, 10);
  EXPECT_LE(same_seed, 10);
}

// Over many keys each element goes everywhere equally often: chi-square of the table of
// (element, image) counts. For n^2 cells with n^2 - 2n + 1 degrees of freedom the statistic has
// mean dof and standard deviation sqrt(2 dof); six of them are exceeded with probability < 1e-8.
TEST(Permutation, OverKeys_ImagesAreUniform) {
  constexpr int kKeys = 20000;
  for (const int64_t n : {int64_t{2}, int64_t{5}, int64_t{16}, int64_t{23}}) {
    std::vector<int> counts(static_cast<size_t>(n * n), 0);
    for (uint64_t seed = 0; seed < kKeys; ++seed) {
      const Permutation permutation(n, key_of(seed, 0));
      for (int64_t i = 0; i < n; ++i) ++counts[static_cast<size_t>(i * n + permutation[i])];
    }
    const double expected = static_cast<double>(kKeys) / static_cast<double>(n);
    double statistic = 0.0;
    for (const int count : counts) statistic += (count - expected) * (count - expected) / expected;
    const double dof = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(statistic, dof + 6 * std::sqrt(2 * dof) + 20) << "n " << n;
  }
}

// Neighbours part: the mean distance of the images of i and i + 1 is n / 3, with a standard error
// of about n / sqrt(18 n).
TEST(Permutation, NeighboursPart) {
  constexpr int64_t kSize = 100000;
  const Permutation permutation(kSize, key_of(3, 0));
  double sum = 0.0;
  for (int64_t i = 0; i + 1 < kSize; ++i) {
    sum += std::abs(static_cast<double>(permutation[i] - permutation[i + 1]));
  }
  const double mean = sum / (kSize - 1);
  EXPECT_NEAR(mean, kSize / 3.0, 6 * kSize / std::sqrt(18.0 * kSize));
}

}  // namespace permutation_test
}  // namespace zinc::data
