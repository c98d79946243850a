#include "kernels/gelu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace gelu_test {

using test::HostArray;
using testing::HasSubstr;

constexpr GeluKind kKinds[] = {GeluKind::erf, GeluKind::tanh};

HostArray forward(GeluKind kind, const HostArray& x) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(x.shape(), x.dtype());
  gelu_forward({.kind = kind, .x = x, .y = y}, test::test_stream());
  return y;
}

HostArray backward(GeluKind kind, const HostArray& x, const HostArray& dy) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray dx(x.shape(), x.dtype());
  gelu_backward({.kind = kind, .x = x, .dy = dy, .dx = dx}, test::test_stream());
  return dx;
}

TEST(Gelu, KnownValues) {
  // x * Phi(x) with Phi(1) = 0.841344746068543, Phi(-2) = 0.0227501319481792; the tanh form from
  // its formula by hand at 1: 0.5 * (1 + tanh(0.7978845608 * 1.044715)).
  const HostArray x = HostArray::of({0.0, 1.0, -2.0}, Shape{3}, DType::f64);
  const HostArray erf = forward(GeluKind::erf, x);
  EXPECT_EQ(erf.at(0), 0.0);
  EXPECT_NEAR(erf.at(1), 0.841344746068543, 1e-14);
  EXPECT_NEAR(erf.at(2), -2.0 * 0.0227501319481792, 1e-14);
  const HostArray tanh = forward(GeluKind::tanh, x);
  EXPECT_EQ(tanh.at(0), 0.0);
  EXPECT_NEAR(tanh.at(1), 0.8411919906082768, 1e-14);
}

TEST(Gelu, ShortFloats_AreTheF64ValueOfTheRoundedArgument) {
  for (const GeluKind kind : kKinds) {
    for (const DType dtype : test::kShortFloatDTypes) {
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = HostArray::random(Shape{n}, dtype, 1, -6.0, 6.0);
        const HostArray dy = HostArray::random(Shape{n}, dtype, 2);
        // 1 + erf and 1 + tanh lose relative, not absolute accuracy below 0: an error of 2^-24
        // there is one of |x| / 2 * 2^-24 <= 3 * 2^-24 in the result, 30 * 2^-24 of the floor of
        // 0.1.
        const double tolerance = test::epsilon_of(dtype) + 32 * 0x1p-24;
        ASSERT_LE(test::max_relative_error(forward(kind, x), forward(kind, x.as(DType::f64)), 0.1),
                  tolerance)
            << name_of(dtype) << " " << n;
        ASSERT_LE(test::relative_l2(backward(kind, x, dy),
                                    backward(kind, x.as(DType::f64), dy.as(DType::f64))),
                  tolerance)
            << name_of(dtype) << " " << n;
      }
    }
  }
}

TEST(Gelu, LargeArguments_AreTheirLimits) {
  for (const GeluKind kind : kKinds) {
    for (const DType dtype : test::kFloatDTypes) {
      const HostArray x = HostArray::of({50.0, -50.0, 3e4, -3e4}, Shape{4}, dtype);
      const HostArray y = forward(kind, x);
      EXPECT_EQ(y.at(0), 50.0);
      EXPECT_EQ(y.at(1), 0.0);
      EXPECT_EQ(y.at(2), x.at(2));
      EXPECT_EQ(y.at(3), 0.0);
      const HostArray dx = backward(kind, x, HostArray::full(Shape{4}, dtype, 2.0));
      EXPECT_EQ(dx.at(0), 2.0);
      EXPECT_EQ(dx.at(1), 0.0);
      EXPECT_EQ(dx.at(2), 2.0);
      EXPECT_EQ(dx.at(3), 0.0);
    }
  }
}

TEST(GeluBackward, F64_MatchesCentralDifferences) {
  for (const GeluKind kind : kKinds) {
    const HostArray x = HostArray::random(Shape{5, 13}, DType::f64, 3, -4.0, 4.0);
    const HostArray dy = HostArray::random(x.shape(), DType::f64, 4);
    const HostArray numeric =
        test::numeric_gradient(x, dy, [&](const HostArray& at) { return forward(kind, at); });
    EXPECT_LE(test::relative_l2(backward(kind, x, dy), numeric), test::kGradientTolerance);
  }
}

TEST(Gelu, StridedViewsInPlaceAndThreads_SameBits) {
  for (const GeluKind kind : kKinds) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      const HostArray x = HostArray::random(Shape{300, 131}, dtype, 5, -3.0, 3.0);
      const HostArray expected = forward(kind, x);
      HostArray inout = x.with_padding(3);
      gelu_forward({.kind = kind, .x = inout, .y = inout}, test::test_stream());
      EXPECT_TRUE(test::same_bits(inout, expected));
      const HostArray dy = HostArray::random(x.shape(), dtype, 6);
      const HostArray dx = backward(kind, x, dy);
      HostArray in_dy = dy.with_padding(9);
      gelu_backward({.kind = kind, .x = x, .dy = in_dy, .dx = in_dy}, test::test_stream());
      EXPECT_TRUE(test::same_bits(in_dy, dx));
      HostArray in_x = x;
      gelu_backward({.kind = kind, .x = in_x, .dy = dy, .dx = in_x}, test::test_stream());
      EXPECT_TRUE(test::same_bits(in_x, dx));
      EXPECT_TRUE(test::same_for_all_thread_counts([&] {
        return std::vector<HostArray>{forward(kind, x), backward(kind, x, dy)};
      }));
    }
  }
}

TEST(Gelu, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::f32);
  HostArray other(Shape{8}, DType::bf16);
  EXPECT_THAT(
      test::message_of_invalid([&] { gelu_forward({.x = x, .y = other}, test::test_stream()); }),
      HasSubstr("y must be f32, not bf16"));
  EXPECT_THAT(test::message_of_invalid(
                  [&] { gelu_backward({.x = x, .dy = other, .dx = x}, test::test_stream()); }),
              HasSubstr("dy must be f32, not bf16"));
  EXPECT_EQ(cost(GeluForward{.x = x, .y = x}).bytes(), 64);
  EXPECT_EQ(cost(GeluBackward{.x = x, .dy = x, .dx = x}).bytes(), 96);
  const View nowhere(reinterpret_cast<void*>(64), DType::f32, Shape{1000},
                     Device{.kind = DeviceKind::cpu, .index = 0, .meta = true});
  gelu_forward({.x = nowhere, .y = nowhere}, test::test_stream());
  gelu_backward({.x = nowhere, .dy = nowhere, .dx = nowhere}, test::test_stream());
}

}  // namespace gelu_test
}  // namespace zinc::kernels
