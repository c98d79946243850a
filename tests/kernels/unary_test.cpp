#include "kernels/unary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace unary_test {

using test::HostArray;
using testing::HasSubstr;

// A line of kernels/elementwise_table.h.
struct Row {
  UnaryOp op;
  double low, high, gap, p, q;
};
constexpr Row kRows[] = {
#define ZINC_ROW(name, value, dx, ...) {UnaryOp::name, __VA_ARGS__},
    ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW
};
const Row& row_of(UnaryOp op) { return kRows[static_cast<size_t>(op)]; }

HostArray argument(const Row& row, const Shape& shape, DType dtype, uint64_t seed) {
  // Away from the poles of reciprocal, log and rsqrt.
  HostArray x = HostArray::random(shape, dtype, seed, std::max(row.gap, 0.125), row.high);
  if (row.low < 0) {
    for (int64_t i = 0; i < x.numel(); i += 2) x.set(i, -x.at(i));
  }
  return x;
}

HostArray forward(const Row& row, const HostArray& x) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(x.shape(), x.dtype());
  unary({.op = row.op, .x = x, .y = y, .p = row.p, .q = row.q}, test::test_stream());
  return y;
}

HostArray backward(const Row& row, const HostArray& x, const HostArray& dy) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray dx(x.shape(), x.dtype());
  unary_backward({.op = row.op, .x = x, .dy = dy, .dx = dx, .p = row.p, .q = row.q},
                 test::test_stream());
  return dx;
}

// The functions of the standard library. A new line of the table without a case here fails to
// compile.
double exact(const Row& row, double x) {
  const double p = row.p;
  switch (row.op) {
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
    case UnaryOp::leaky_relu:
      return x < 0.0 ? x * p : x;
    case UnaryOp::silu:
      return x / (1.0 + std::exp(-x));
    case UnaryOp::softplus:
      return x > 30.0 ? x : std::log1p(std::exp(x));
    case UnaryOp::erf:
      return std::erf(x);
    case UnaryOp::pow:
      return std::pow(x, p);
    case UnaryOp::clamp:
      return std::isnan(x) ? x : std::clamp(x, p, row.q);
    case UnaryOp::affine:
      return x * p + row.q;
    case UnaryOp::over_scalar:
      return x / p;
    case UnaryOp::scalar_over:
      return p / x;
  }
  return 0.0;
}

// Units in the last place of f32: kernels/unary.h. |p log x| <= 2.5 log 8 for power.
double units(UnaryOp op) { return op == UnaryOp::pow ? 9.0 : 4.0; }

TEST(Unary, F64_MatchesTheLibraryFunction) {
  for (const Row& row : kRows) {
    for (const int64_t n : test::kOddSizes) {
      const HostArray x = argument(row, Shape{n}, DType::f64, 1);
      const HostArray y = forward(row, x);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y.at(i), exact(row, x.at(i)), 1e-15 * std::fabs(exact(row, x.at(i))))
            << name_of(row.op) << " of " << x.at(i);
      }
    }
  }
}

TEST(Unary, ShortFloats_AreTheF64ValueOfTheRoundedArgument) {
  for (const Row& row : kRows) {
    for (const DType dtype : test::kShortFloatDTypes) {
      // One rounding of a value that is within some units in the last place of f32 (2^-23 each).
      const double tolerance = test::epsilon_of(dtype) + units(row.op) * 0x1p-23;
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = argument(row, Shape{n}, dtype, 2);
        const HostArray expected = forward(row, x.as(DType::f64));
        ASSERT_LE(test::max_relative_error(forward(row, x), expected, 0.0), tolerance)
            << name_of(row.op) << " " << name_of(dtype) << " " << n;
      }
    }
  }
}

TEST(Unary, StridedViewsAndInPlace_SameBitsAsContiguous) {
  for (const UnaryOp op : {UnaryOp::tanh, UnaryOp::neg, UnaryOp::clamp}) {
    const Row& row = row_of(op);
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      const HostArray x = argument(row, Shape{3, 5, 19}, dtype, 3);
      const HostArray expected = forward(row, x);
      const HostArray x_padded = x.with_padding(4);
      HostArray y = HostArray::strided(Shape{3, 5, 19}, dtype, 7);
      unary({.op = op, .x = x_padded, .y = y, .p = row.p, .q = row.q}, test::test_stream());
      EXPECT_TRUE(test::same_bits(y, expected));
      HostArray inout = x_padded;
      unary({.op = op, .x = inout, .y = inout, .p = row.p, .q = row.q}, test::test_stream());
      EXPECT_TRUE(test::same_bits(inout, expected));
    }
  }
}

TEST(Unary, ArgumentThatIsSmaller_IsRepeated) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{4, 1}, Shape{3, 1, 5}, Shape{4, 5}}) {
      const HostArray x = HostArray::random(shape, dtype, 11);
      HostArray y(Shape{3, 4, 5}, dtype);
      unary({.op = UnaryOp::affine, .x = x, .y = y, .p = 1.0}, test::test_stream());
      for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t index[] = {i / 20, i / 5 % 4, i % 5};
        int64_t place = 0;
        for (int d = 0; d < shape.rank(); ++d) {
          const int64_t extent = shape[d];
          place = place * extent + (extent == 1 ? 0 : index[3 - shape.rank() + d]);
        }
        ASSERT_EQ(y.at(i), x.at(place)) << to_string(shape) << name_of(dtype) << i;
      }
    }
  }
}

TEST(Unary, EdgeValues_FollowIeee) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray x = HostArray::of({inf, -inf, nan, 0.0, -0.0, 100.0, -100.0}, Shape{7}, dtype);
    for (const Row& row : kRows) {
      const HostArray y = forward(row, x);
      for (int64_t i = 0; i < 7; ++i) {
        const double a = x.at(i);
        double expected = exact(row, a);
        if (row.op == UnaryOp::silu && a == -inf) expected = nan;  // -inf * 0
        HostArray rounded = HostArray::of({expected}, Shape{1}, dtype);
        if (std::isnan(rounded.at(0))) {
          EXPECT_TRUE(std::isnan(y.at(i))) << name_of(row.op) << " of " << a << " gave " << y.at(i);
        } else if (!std::isfinite(rounded.at(0)) || rounded.at(0) == 0.0) {
          EXPECT_EQ(y.at(i), rounded.at(0))
              << name_of(dtype) << " " << name_of(row.op) << " of " << a;
        }
      }
    }
  }
}

TEST(UnaryBackward, F64_MatchesCentralDifferences) {
  for (const Row& row : kRows) {
    const HostArray x = argument(row, Shape{3, 17}, DType::f64, 4);
    const HostArray dy = HostArray::random(x.shape(), DType::f64, 5);
    const HostArray numeric =
        test::numeric_gradient(x, dy, [&](const HostArray& at) { return forward(row, at); });
    EXPECT_LE(test::relative_l2(backward(row, x, dy), numeric), test::kGradientTolerance)
        << name_of(row.op);
  }
}

TEST(UnaryBackward, ShortFloats_AreTheF64ValueOfTheRoundedArguments) {
  for (const Row& row : kRows) {
    for (const DType dtype : test::kShortFloatDTypes) {
      // One rounding of a handful of f32 operations.
      const double tolerance = test::epsilon_of(dtype) + 2 * units(row.op) * 0x1p-23;
      for (const int64_t n : test::kOddSizes) {
        const HostArray x = argument(row, Shape{n}, dtype, 6);
        const HostArray dy = HostArray::random(x.shape(), dtype, 7);
        const HostArray expected = backward(row, x.as(DType::f64), dy.as(DType::f64));
        ASSERT_LE(test::relative_l2(backward(row, x, dy), expected), tolerance)
            << name_of(row.op) << " " << name_of(dtype) << " " << n;
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
    EXPECT_EQ(backward(row_of(UnaryOp::relu), zero, huge).at(0), 0.0);
    const HostArray four = HostArray::full(Shape{1}, dtype, 4.0);
    EXPECT_EQ(backward(row_of(UnaryOp::leaky_relu), zero, four).at(0), 0.5);
    EXPECT_EQ(backward(row_of(UnaryOp::abs), zero, HostArray::full(Shape{1}, dtype, 3.0)).at(0),
              0.0);
  }
}

TEST(UnaryBackward, ResultInThePlaceOfEitherArgument) {
  const HostArray x = argument(row_of(UnaryOp::silu), Shape{1025}, DType::bf16, 8);
  const HostArray dy = HostArray::random(x.shape(), DType::bf16, 9);
  const HostArray expected = backward(row_of(UnaryOp::silu), x, dy);
  HostArray in_x = x;
  unary_backward({.op = UnaryOp::silu, .x = in_x, .dy = dy, .dx = in_x}, test::test_stream());
  EXPECT_TRUE(test::same_bits(in_x, expected));
  HostArray in_dy = dy;
  unary_backward({.op = UnaryOp::silu, .x = x, .dy = in_dy, .dx = in_dy}, test::test_stream());
  EXPECT_TRUE(test::same_bits(in_dy, expected));
}

TEST(Unary, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = argument(row_of(UnaryOp::exp), Shape{100'003}, DType::bf16, 10);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    return std::vector<HostArray>{forward(row_of(UnaryOp::exp), x),
                                  backward(row_of(UnaryOp::exp), x, x)};
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
