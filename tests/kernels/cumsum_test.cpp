#include "kernels/cumsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace cumsum_test {

using test::HostArray;
using testing::HasSubstr;

HostArray sums(const HostArray& x, bool reverse) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(x.shape(), x.dtype());
  cumsum({.x = x, .reverse = reverse, .y = y}, test::test_stream());
  return y;
}

TEST(Cumsum, EveryDtype_BothWays) {
  for (const DType dtype : test::kFloatDTypes) {
    for (const int64_t n : {0, 1, 3, 17, 255, 1025, 4099}) {
      const HostArray x = HostArray::random(Shape{3, n}, dtype, 1, 0.0, 1.0);
      for (const bool reverse : {false, true}) {
        const HostArray y = sums(x, reverse);
        for (int64_t r = 0; r < 3; ++r) {
          double sum = 0.0;
          for (int64_t i = 0; i < n; ++i) {
            const int64_t at = r * n + (reverse ? n - 1 - i : i);
            sum += x.at(at);
            // Positive terms: each of at most n additions rounds once, and the result to the dtype.
            const double additions = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
            const double tolerance =
                test::epsilon_of(dtype) + additions * 8 * std::sqrt(static_cast<double>(i + 1));
            ASSERT_NEAR(y.at(at), sum, tolerance * sum) << name_of(dtype) << n << reverse << at;
          }
        }
      }
    }
  }
}

TEST(Cumsum, WholeNumbers_AreExactAndInPlace) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const test::DeviceScope scope(test::device_for(dtype));
    HostArray x = HostArray::full(Shape{2, 5000}, dtype, 1.0);
    cumsum({.x = x, .y = x}, test::test_stream());
    for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), i % 5000 + 1);
  }
}

TEST(Cumsum, SameBitsForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{67, 700}, DType::f32, 2);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    return std::vector<HostArray>{sums(x, false), sums(x, true)};
  }));
}

TEST(Cumsum, BadArguments_CostAndMetaDevice) {
  const HostArray x(Shape{2, 3}, DType::f32);
  const auto message = [&](const Cumsum& args) {
    return test::message_of_invalid([&] { cumsum(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .y = HostArray(Shape{3, 2}, DType::f32)}),
              HasSubstr("y must have shape [2, 3], not [3, 2]"));
  EXPECT_THAT(message({.x = HostArray(Shape{}, DType::f32), .y = x}),
              HasSubstr("cumsum: x must have at least one dimension"));
  EXPECT_EQ(cost(Cumsum{.x = x, .y = x}).bytes(), 48);
  cumsum(
      {.x = test::meta_view(Shape{9}, DType::f32), .y = test::meta_view(Shape{9}, DType::f32, 2)},
      test::test_stream());
}

}  // namespace cumsum_test
}  // namespace zinc::kernels
