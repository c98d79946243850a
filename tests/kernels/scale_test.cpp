#include "kernels/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace scale_test {

using test::HostArray;
using testing::HasSubstr;

TEST(Scale, EveryDType_MultipliesByBothFactorsAndRoundsOnce) {
  const HostArray device_factor = HostArray::full(Shape{1}, DType::f32, 0.3);
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t n : test::kOddSizes) {
      const HostArray x = HostArray::random(Shape{2, n}, dtype, 1);
      HostArray y = HostArray::strided(Shape{2, n}, dtype, 3);
      scale({.x = x, .factor = 0.7, .device_factor = device_factor, .y = y}, test::test_stream());
      for (int64_t i = 0; i < x.numel(); ++i) {
        double expected = 0.0;
        if (dtype == DType::f64) {
          expected = x.at(i) * (0.7 * static_cast<double>(0.3f));
        } else {
          expected = static_cast<double>(static_cast<float>(x.at(i)) * (0.7f * 0.3f));
        }
        ASSERT_EQ(y.at(i), HostArray::of({expected}, Shape{}, dtype).at(0)) << name_of(dtype);
      }
    }
  }
}

// A norm of 0.3, and one below the least norm, 0.5.
TEST(Scale, SumOfSquares_DividesByTheRootRoundedOnce) {
  for (const double least_norm : {1e-7, 0.5}) {
    const HostArray squares = HostArray::full(Shape{1}, DType::f64, 0.09);
    const double factor = 0.7 / std::max(std::sqrt(0.09), least_norm);
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = HostArray::random(Shape{n}, dtype, 1);
        HostArray y(Shape{n}, dtype);
        scale({.x = x, .factor = 0.7, .sum_of_squares = squares, .least_norm = least_norm, .y = y},
              test::test_stream());
        for (int64_t i = 0; i < n; ++i) {
          const double expected =
              dtype == DType::f64
                  ? x.at(i) * factor
                  : double{static_cast<float>(x.at(i)) * static_cast<float>(factor)};
          ASSERT_EQ(y.at(i), HostArray::of({expected}, Shape{}, dtype).at(0)) << name_of(dtype);
        }
      }
    }
  }
  const HostArray nan =
      HostArray::full(Shape{1}, DType::f64, std::numeric_limits<double>::quiet_NaN());
  HostArray y = HostArray::full(Shape{3}, DType::f32, 1.0);
  scale({.x = y, .sum_of_squares = nan, .least_norm = 1.0, .y = y}, test::test_stream());
  EXPECT_TRUE(std::isnan(y.at(0)));
}

TEST(Scale, InPlaceWithoutDeviceFactor) {
  HostArray x = HostArray::of({1.0, -2.0, 3.0}, Shape{3}, DType::bf16);
  scale({.x = x, .factor = 0.5, .y = x}, test::test_stream());
  EXPECT_TRUE(test::same_bits(x, HostArray::of({0.5, -1.0, 1.5}, Shape{3}, DType::bf16)));
}

TEST(Scale, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::bf16);
  EXPECT_THAT(test::message_of_invalid(
                  [&] { scale({.x = x, .device_factor = x, .y = x}, test::test_stream()); }),
              HasSubstr("device_factor must be f32"));
  EXPECT_THAT(test::message_of_invalid(
                  [&] { scale({.x = x, .sum_of_squares = x, .y = x}, test::test_stream()); }),
              HasSubstr("sum_of_squares must be f64"));
  const HostArray squares(Shape{1}, DType::f64);
  EXPECT_THAT(test::message_of_invalid(
                  [&] { scale({.x = x, .sum_of_squares = squares, .y = x}, test::test_stream()); }),
              HasSubstr("least_norm must be above 0"));
  const HostArray device_factor(Shape{1}, DType::f32);
  EXPECT_THAT(test::message_of_invalid([&] {
                scale({.x = x,
                       .device_factor = device_factor,
                       .sum_of_squares = squares,
                       .least_norm = 1.0,
                       .y = x},
                      test::test_stream());
              }),
              HasSubstr("device_factor and sum_of_squares exclude each other"));
  EXPECT_EQ(cost(Scale{.x = x, .y = x}).bytes(), 32);
  const View nowhere = test::meta_view(Shape{8}, DType::f32);
  scale({.x = nowhere, .y = nowhere}, test::test_stream());
}

}  // namespace scale_test
}  // namespace zinc::kernels
