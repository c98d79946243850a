#include "kernels/argmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace argmax_test {

using test::HostArray;
using testing::HasSubstr;

HostArray places(const HostArray& x, bool smallest) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(Shape{x.shape()[0]}, DType::i64);
  argmax({.x = x, .smallest = smallest, .y = y}, test::test_stream());
  return y;
}

TEST(Argmax, FirstOfEqualElements) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t n : {1, 3, 17, 1023, 2500}) {
      // Few values, so that the best stands several times.
      const HostArray x =
          HostArray::random(Shape{5, n}, DType::i32, 1, -3.0, 3.0).as(dtype).with_padding(4);
      for (const bool smallest : {false, true}) {
        const HostArray y = places(x, smallest);
        for (int64_t r = 0; r < 5; ++r) {
          int64_t best = 0;
          for (int64_t i = 1; i < n; ++i) {
            const double value = x.at(r * n + i);
            const double so_far = x.at(r * n + best);
            if (smallest ? value < so_far : value > so_far) best = i;
          }
          ASSERT_EQ(y.at(r), best) << name_of(dtype) << n << smallest;
        }
      }
    }
  }
}

TEST(Argmax, NaN_IsTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray x = HostArray::of({inf, nan, nan, -inf, -inf, -inf}, Shape{2, 3}, dtype);
    for (const bool smallest : {false, true}) {
      EXPECT_EQ(places(x, smallest).at(0), 1) << name_of(dtype);
      EXPECT_EQ(places(x, smallest).at(1), 0) << name_of(dtype);
    }
  }
}

TEST(Argmax, BadArguments_CostAndMetaDevice) {
  const HostArray y(Shape{2}, DType::i64);
  const auto message = [&](const Argmax& args) {
    return test::message_of_invalid([&] { argmax(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = HostArray(Shape{2, 0}, DType::f32), .y = y}),
              HasSubstr("argmax: no place in rows of no elements, of shape [2, 0]"));
  EXPECT_THAT(message({.x = HostArray(Shape{2, 3}, DType::i32), .y = y}), HasSubstr("not i32"));
  EXPECT_THAT(message({.x = HostArray(Shape{3, 3}, DType::f32), .y = y}),
              HasSubstr("y must have shape [3], not [2]"));
  EXPECT_EQ(cost(Argmax{.x = HostArray(Shape{2, 3}, DType::f32), .y = y}).bytes(), 24 + 16);
  argmax({.x = test::meta_view(Shape{2, 3}, DType::f32),
          .y = test::meta_view(Shape{2}, DType::i64, 2)},
         test::test_stream());
}

}  // namespace argmax_test
}  // namespace zinc::kernels
