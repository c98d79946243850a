#include "kernels/unary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace unary_test {

using test::HostArray;
using testing::HasSubstr;

constexpr UnaryOp kOps[] = {UnaryOp::neg,   UnaryOp::abs,        UnaryOp::square, UnaryOp::sqrt,
                            UnaryOp::rsqrt, UnaryOp::reciprocal, UnaryOp::exp,    UnaryOp::log,
                            UnaryOp::tanh,  UnaryOp::sigmoid,    UnaryOp::relu,   UnaryOp::silu};

bool needs_positive(UnaryOp op) {
  return op == UnaryOp::sqrt || op == UnaryOp::rsqrt || op == UnaryOp::log;
}

HostArray argument(UnaryOp op, const Shape& shape, DType dtype, uint64_t seed) {
  // Away from the poles of reciprocal, log and rsqrt.
  HostArray x = HostArray::random(shape, dtype, seed, 0.125, 4.0);
  if (!needs_positive(op)) {
    for (int64_t i = 0; i < x.numel(); i += 2) x.set(i, -x.at(i));
  }
  return x;
}

HostArray forward(UnaryOp op, const HostArray& x) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(x.shape(), x.dtype());
  unary({.op = op, .x = x, .y = y}, test::test_stream());
  return y;
}

HostArray backward(UnaryOp op, const HostArray& x, const HostArray& dy) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray dx(x.shape(), x.dtype());
  unary_backward({.op = op, .x = x, .dy = dy, .dx = dx}, test::test_stream());
  return dx;
}

double exact(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::neg:
      return -x;
    case UnaryOp::abs:
      return std::fabs(x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::rsqrt:
      return 1.0 / std::sqrt(x);
    case UnaryOp::reciprocal:
      return 1.0 / x;
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case UnaryOp::relu:
      return x < 0.0 ? 0.0 : x;
    case UnaryOp::silu:
      return x / (1.0 + std::exp(-x));
  }
  return 0.0;
}

TEST(Unary, F64_MatchesTheLibraryFunction) {
  for (const UnaryOp op : kOps) {
    for (const int64_t n : test::kOddSizes) {
      const HostArray x = argument(op, Shape{n}, DType::f64, 1);
      const HostArray y = forward(op, x);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y.at(i), exact(op, x.at(i)), 1e-15 * std::fabs(exact(op, x.at(i))))
            << name_of(op) << " of " << x.at(i);
      }
    }
  }
}

TEST(Unary, ShortFloats_AreTheF64ValueOfTheRoundedArgument) {
  for (const UnaryOp op : kOps) {
    for (const DType dtype : test::kShortFloatDTypes) {
      // One rounding of a value that is within 4 units in the last place of f32 (2^-23 each).
      const double tolerance = test::epsilon_of(dtype) + 4 * 0x1p-23;
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = argument(op, Shape{n}, dtype, 2);
        const HostArray expected = forward(op, x.as(DType::f64));
        ASSERT_LE(test::max_relative_error(forward(op, x), expected, 0.0), tolerance)
            << name_of(op) << " " << name_of(dtype) << " " << n;
      }
    }
  }
}

TEST(Unary, StridedViewsAndInPlace_SameBitsAsContiguous) {
  for (const UnaryOp op : {UnaryOp::tanh, UnaryOp::neg}) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      const HostArray x = argument(op, Shape{3, 5, 19}, dtype, 3);
      const HostArray expected = forward(op, x);
      const HostArray x_padded = x.with_padding(4);
      HostArray y = HostArray::strided(Shape{3, 5, 19}, dtype, 7);
      unary({.op = op, .x = x_padded, .y = y}, test::test_stream());
      EXPECT_TRUE(test::same_bits(y, expected));
      HostArray inout = x_padded;
      unary({.op = op, .x = inout, .y = inout}, test::test_stream());
      EXPECT_TRUE(test::same_bits(inout, expected));
    }
  }
}

TEST(Unary, EdgeValues_FollowIeee) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray x = HostArray::of({inf, -inf, nan, 0.0, -0.0, 100.0, -100.0}, Shape{7}, dtype);
    for (const UnaryOp op : kOps) {
      const HostArray y = forward(op, x);
      for (int64_t i = 0; i < 7; ++i) {
        const double a = x.at(i);
        double expected = exact(op, a);
        if (op == UnaryOp::silu && a == -inf) expected = nan;  // -inf * 0
        HostArray rounded = HostArray::of({expected}, Shape{1}, dtype);
        if (std::isnan(rounded.at(0))) {
          EXPECT_TRUE(std::isnan(y.at(i))) << name_of(op) << " of " << a << " gave " << y.at(i);
        } else if (!std::isfinite(rounded.at(0)) || rounded.at(0) == 0.0) {
          EXPECT_EQ(y.at(i), rounded.at(0)) << name_of(dtype) << " " << name_of(op) << " of " << a;
        }
      }
    }
  }
}

TEST(UnaryBackward, F64_MatchesCentralDifferences) {
  for (const UnaryOp op : kOps) {
    const HostArray x = argument(op, Shape{3, 17}, DType::f64, 4);
    const HostArray dy = HostArray::random(x.shape(), DType::f64, 5);
    const HostArray numeric =
        test::numeric_gradient(x, dy, [&](const HostArray& at) { return forward(op, at); });
    EXPECT_LE(test::relative_l2(backward(op, x, dy), numeric), test::kGradientTolerance)
        << name_of(op);
  }
}

TEST(UnaryBackward, ShortFloats_AreTheF64ValueOfTheRoundedArguments) {
  for (const UnaryOp op : kOps) {
    for (const DType dtype : test::kShortFloatDTypes) {
      // One rounding of a handful of f32 operations.
      const double tolerance = test::epsilon_of(dtype) + 8 * 0x1p-23;
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = argument(op, Shape{n}, dtype, 6);
        const HostArray dy = HostArray::random(x.shape(), dtype, 7);
        const HostArray expected = backward(op, x.as(DType::f64), dy.as(DType::f64));
        ASSERT_LE(test::relative_l2(backward(op, x, dy), expected), tolerance)
            << name_of(op) << " " << name_of(dtype) << " " << n;
      }
    }
  }
}

TEST(UnaryBackward, Kinks_HaveTheStatedGradient) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray zero = HostArray::full(Shape{1}, dtype, 0.0);
    const HostArray huge =
        HostArray::full(Shape{1}, dtype, std::numeric_limits<double>::infinity());
    EXPECT_EQ(backward(UnaryOp::relu, zero, huge).at(0), 0.0);
    EXPECT_EQ(backward(UnaryOp::abs, zero, HostArray::full(Shape{1}, dtype, 3.0)).at(0), 0.0);
  }
}

TEST(UnaryBackward, ResultInThePlaceOfEitherArgument) {
  const HostArray x = argument(UnaryOp::silu, Shape{1025}, DType::bf16, 8);
  const HostArray dy = HostArray::random(x.shape(), DType::bf16, 9);
  const HostArray expected = backward(UnaryOp::silu, x, dy);
  HostArray in_x = x;
  unary_backward({.op = UnaryOp::silu, .x = in_x, .dy = dy, .dx = in_x}, test::test_stream());
  EXPECT_TRUE(test::same_bits(in_x, expected));
  HostArray in_dy = dy;
  unary_backward({.op = UnaryOp::silu, .x = x, .dy = in_dy, .dx = in_dy}, test::test_stream());
  EXPECT_TRUE(test::same_bits(in_dy, expected));
}

TEST(Unary, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = argument(UnaryOp::exp, Shape{100'003}, DType::bf16, 10);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    return std::vector<HostArray>{forward(UnaryOp::exp, x), backward(UnaryOp::exp, x, x)};
  }));
}

TEST(Unary, BadArguments_NameWhatIsWrong) {
  HostArray x(Shape{8}, DType::f32);
  HostArray other(Shape{8}, DType::bf16);
  HostArray ids(Shape{8}, DType::i32);
  HostArray shorter(Shape{7}, DType::f32);
  const auto message = [&](const Unary& args) {
    return test::message_of_invalid([&] { unary(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .y = other}), HasSubstr("y must be f32, not bf16"));
  EXPECT_THAT(message({.x = ids, .y = ids}), HasSubstr("not i32"));
  EXPECT_THAT(message({.x = x, .y = shorter}), HasSubstr("shape [8], not [7]"));
  EXPECT_THAT(message({.x = {}, .y = x}), HasSubstr("x is missing"));
  EXPECT_THAT(message({.x = x.view().narrow(0, 0, 7), .y = x.view().narrow(0, 1, 7)}),
              HasSubstr("must not overlap it in part"));
  EXPECT_THAT(test::message_of_invalid(
                  [&] { unary_backward({.x = x, .dy = shorter, .dx = x}, test::test_stream()); }),
              HasSubstr("dy must have shape [8]"));
}

TEST(Unary, CostAndMetaDevice) {
  const HostArray x(Shape{10}, DType::bf16);
  EXPECT_EQ(cost(Unary{.x = x, .y = x}).bytes(), 40);
  EXPECT_EQ(cost(UnaryBackward{.x = x, .dy = x, .dx = x}).bytes(), 60);
  const View nowhere(reinterpret_cast<void*>(64), DType::f32, Shape{1000},
                     Device{.kind = DeviceKind::cpu, .index = 0, .meta = true});
  unary({.x = nowhere, .y = nowhere}, test::test_stream());
  unary_backward({.x = nowhere, .dy = nowhere, .dx = nowhere}, test::test_stream());
}

}  // namespace unary_test
}  // namespace zinc::kernels
