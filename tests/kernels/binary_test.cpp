#include "kernels/binary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace binary_test {

using test::HostArray;
using testing::HasSubstr;

constexpr BinaryOp kOps[] = {
#define ZINC_ROW(name, ...) BinaryOp::name,
    ZINC_BINARY_OPS(ZINC_ROW)
#undef ZINC_ROW
};

HostArray forward(BinaryOp op, const HostArray& a, const HostArray& b) {
  const test::DeviceScope scope(test::device_for(a.dtype()));
  HostArray y(a.shape(), a.dtype());
  binary({.op = op, .a = a, .b = b, .y = y}, test::test_stream());
  return y;
}

// The results are in the order of BinaryOp.
double exact(BinaryOp op, double a, double b) {
  const double results[] = {a + b, a - b, a * b, a / b, std::max(a, b), std::min(a, b)};
  return results[static_cast<size_t>(op)];
}

// Divisors away from 0.
HostArray right_hand(const Shape& shape, DType dtype, uint64_t seed) {
  HostArray b = HostArray::random(shape, dtype, seed, 0.25, 2.0);
  for (int64_t i = 0; i < b.numel(); i += 3) b.set(i, -b.at(i));
  return b;
}

TEST(Binary, EveryOpDtypeAndBroadcast_IsTheRoundedExactResult) {
  for (const BinaryOp op : kOps) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t n : test::kOddSizes) {
        const HostArray a = HostArray::random(Shape{2, 3, n}, dtype, 1);
        for (const Shape& shape : {Shape{2, 3, n}, Shape{3, n}, Shape{n}, Shape{1}, Shape{}}) {
          const HostArray b = right_hand(shape, dtype, 2);
          const HostArray y = forward(op, a, b);
          for (int64_t i = 0; i < a.numel(); ++i) {
            // f32 operations of f32 values are their correctly rounded results; the 16-bit formats
            // round those once more.
            const double right = b.at(i % b.numel());
            double expected = exact(op, a.at(i), right);
            if (dtype != DType::f64) expected = static_cast<double>(static_cast<float>(expected));
            const HostArray rounded = HostArray::of({expected}, Shape{}, dtype);
            ASSERT_EQ(y.at(i), rounded.at(0))
                << name_of(op) << " " << name_of(dtype) << " " << a.at(i) << ", " << right;
          }
        }
      }
    }
  }
}

// Element i of [3, 4, 5] in an array that stretches to it.
int64_t place_in(const Shape& shape, int64_t i) {
  const int64_t index[] = {i / 20, i / 5 % 4, i % 5};
  int64_t place = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    place = place * shape[d] + (shape[d] == 1 ? 0 : index[3 - shape.rank() + d]);
  }
  return place;
}

TEST(Binary, ShapesThatStretch_BothWays) {
  const Shape pairs[][2] = {{Shape{3, 4, 1}, Shape{3, 4, 5}}, {Shape{3, 4, 5}, Shape{3, 1, 5}},
                            {Shape{3, 1, 1}, Shape{4, 5}},    {Shape{1, 4, 1}, Shape{3, 1, 5}},
                            {Shape{5}, Shape{3, 4, 1}},       {Shape{}, Shape{3, 4, 5}}};
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const auto& [left, right] : pairs) {
      const HostArray a = HostArray::random(left, dtype, 21);
      const HostArray b = HostArray::random(right, dtype, 22);
      const HostArray dy = HostArray::random(Shape{3, 4, 5}, dtype, 23);
      HostArray y(Shape{3, 4, 5}, dtype);
      binary({.op = BinaryOp::sub, .a = a, .b = b, .y = y}, test::test_stream());
      HostArray da(y.shape(), dtype);
      HostArray db(y.shape(), dtype);
      binary_backward({.op = BinaryOp::mul, .a = a, .b = b, .dy = dy, .da = da, .db = db},
                      test::test_stream());
      const auto rounded = [&](double value) {
        if (dtype != DType::f64) value = static_cast<double>(static_cast<float>(value));
        return HostArray::of({value}, Shape{}, dtype).at(0);
      };
      for (int64_t i = 0; i < y.numel(); ++i) {
        const double x = a.at(place_in(left, i));
        const double z = b.at(place_in(right, i));
        ASSERT_EQ(y.at(i), rounded(x - z)) << to_string(left) << to_string(right) << i;
        ASSERT_EQ(da.at(i), rounded(dy.at(i) * z)) << to_string(left) << to_string(right) << i;
        if (db.shape() == right) continue;
        ASSERT_EQ(db.at(i), rounded(dy.at(i) * x)) << to_string(left) << to_string(right) << i;
      }
    }
  }
}

TEST(Binary, StridedViewsAndInPlace_SameBits) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray a = HostArray::random(Shape{4, 5, 33}, dtype, 4);
    const HostArray b = HostArray::random(Shape{4, 5, 33}, dtype, 5);
    const HostArray expected = forward(BinaryOp::sub, a, b);
    HostArray in_a = a.with_padding(3);
    binary({.op = BinaryOp::sub, .a = in_a, .b = b.with_padding(1), .y = in_a},
           test::test_stream());
    EXPECT_TRUE(test::same_bits(in_a, expected));
    HostArray in_b = b;
    binary({.op = BinaryOp::sub, .a = a, .b = in_b, .y = in_b}, test::test_stream());
    EXPECT_TRUE(test::same_bits(in_b, expected));
    // a row of a table over [B, T, C], B and T both broadcast
    const HostArray row = HostArray::random(Shape{33}, dtype, 6);
    HostArray in_padded = a.with_padding(3);
    binary({.op = BinaryOp::add, .a = in_padded, .b = row, .y = in_padded}, test::test_stream());
    EXPECT_TRUE(test::same_bits(in_padded, forward(BinaryOp::add, a, row)));
  }
}

TEST(Binary, MaximumAndMinimum_PassNaNOn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray a = HostArray::of({nan, 1.0, nan}, Shape{3}, dtype);
    const HostArray b = HostArray::of({1.0, nan, nan}, Shape{3}, dtype);
    for (const BinaryOp op : {BinaryOp::maximum, BinaryOp::minimum}) {
      const HostArray y = forward(op, a, b);
      for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y.at(i)));
    }
  }
}

struct Gradients {
  HostArray a;
  HostArray b;
};

Gradients backward(BinaryOp op, const HostArray& a, const HostArray& b, const HostArray& dy) {
  const test::DeviceScope scope(test::device_for(a.dtype()));
  Gradients d{HostArray(a.shape(), a.dtype()), HostArray(b.shape(), b.dtype())};
  binary_backward({.op = op, .a = a, .b = b, .dy = dy, .da = d.a, .db = d.b}, test::test_stream());
  return d;
}

TEST(BinaryBackward, F64_MatchesCentralDifferences) {
  for (const BinaryOp op : kOps) {
    for (const Shape& shape : {Shape{2, 3, 7}, Shape{3, 7}, Shape{7}, Shape{1}, Shape{}}) {
      const HostArray a = HostArray::random(Shape{2, 3, 7}, DType::f64, 7);
      const HostArray b = right_hand(shape, DType::f64, 8);
      const HostArray dy = HostArray::random(a.shape(), DType::f64, 9);
      const Gradients got = backward(op, a, b, dy);
      const HostArray da =
          test::numeric_gradient(a, dy, [&](const HostArray& at) { return forward(op, at, b); });
      const HostArray db =
          test::numeric_gradient(b, dy, [&](const HostArray& at) { return forward(op, a, at); });
      // a / b^2 has third derivatives up to 6 / b^4 = 1500 here.
      EXPECT_LE(test::relative_l2(got.a, da), test::kGradientTolerance)
          << name_of(op) << shape.rank();
      EXPECT_LE(test::relative_l2(got.b, db), 100 * test::kGradientTolerance)
          << name_of(op) << shape.rank();
    }
  }
}

TEST(BinaryBackward, ShortFloats_AreTheF64ValueOfTheRoundedArguments) {
  for (const BinaryOp op : kOps) {
    for (const DType dtype : test::kShortFloatDTypes) {
      for (const int64_t cols : {1, 17, 130}) {
        const int64_t rows = 300;
        const HostArray a = HostArray::random(Shape{rows, cols}, dtype, 10);
        const HostArray b = right_hand(Shape{cols}, dtype, 11);
        const HostArray dy = HostArray::random(a.shape(), dtype, 12, 0.0, 1.0);
        const Gradients got = backward(op, a, b, dy);
        const Gradients expected =
            backward(op, a.as(DType::f64), b.as(DType::f64), dy.as(DType::f64));
        // da: one rounding of three f32 operations. db: sums of 300 terms in blocks of 64, whose
        // rounding errors add up like a random walk of 64 + 3 steps in f32, against sums that may
        // cancel to about 1 / sqrt(300) of their terms.
        const double epsilon = test::epsilon_of(dtype);
        EXPECT_LE(test::relative_l2(got.a, expected.a), epsilon + 3 * 0x1p-24);
        EXPECT_LE(test::relative_l2(got.b, expected.b), epsilon + 17 * std::sqrt(67.0) * 0x1p-24)
            << name_of(op) << name_of(dtype) << cols;
      }
    }
  }
}

TEST(BinaryBackward, BroadcastGradient_AccumulatesAndTakesF32) {
  const HostArray dy = HostArray::full(Shape{200, 5}, DType::bf16, 1.0);
  const HostArray b = HostArray::full(Shape{5}, DType::bf16, 0.0);
  HostArray db = HostArray::full(Shape{5}, DType::f32, 0.5);
  binary_backward({.op = BinaryOp::add, .b = b, .dy = dy, .db = db, .accumulate_db = true},
                  test::test_stream());
  for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(db.at(j), 200.5);
  // 201 has no bf16 neighbour nearer than 1: the sum is rounded once, not at every step.
  HostArray narrow = HostArray::full(Shape{5}, DType::bf16, 1.0);
  binary_backward({.op = BinaryOp::sub, .b = b, .dy = dy, .db = narrow, .accumulate_db = true},
                  test::test_stream());
  for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(narrow.at(j), -199.0);
}

TEST(BinaryBackward, GradientOfTheSameShape_AccumulatesAndTakesF32) {
  const HostArray a = HostArray::full(Shape{3, 21}, DType::bf16, 3.0);
  const HostArray dy = HostArray::full(Shape{3, 21}, DType::bf16, 2.0);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    HostArray db = HostArray::full(Shape{3, 21}, dtype, 0.5);
    binary_backward(
        {.op = BinaryOp::mul, .a = a, .b = a, .dy = dy, .db = db, .accumulate_db = true},
        test::test_stream());
    for (int64_t i = 0; i < db.numel(); ++i) ASSERT_EQ(db.at(i), 6.5);
  }
}

TEST(BinaryBackward, Ties_GoToTheFirst) {
  const HostArray a = HostArray::full(Shape{4}, DType::f32, 2.0);
  const HostArray dy = HostArray::full(Shape{4}, DType::f32, 3.0);
  for (const BinaryOp op : {BinaryOp::maximum, BinaryOp::minimum}) {
    const Gradients d = backward(op, a, a, dy);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(d.a.at(i), 3.0);
      EXPECT_EQ(d.b.at(i), 0.0);
    }
  }
}

TEST(BinaryBackward, StridedViewsAndInPlace_SameBits) {
  const HostArray a = HostArray::random(Shape{6, 21}, DType::bf16, 13);
  const HostArray b = right_hand(Shape{6, 21}, DType::bf16, 14);
  const HostArray dy = HostArray::random(a.shape(), DType::bf16, 15);
  for (const BinaryOp op : kOps) {
    const Gradients expected = backward(op, a, b, dy);
    HostArray inout = dy.with_padding(2);
    binary_backward({.op = op, .a = a, .b = b.with_padding(4), .dy = inout, .da = inout},
                    test::test_stream());
    EXPECT_TRUE(test::same_bits(inout, expected.a));
  }
}

TEST(Binary, LongArray_SameBitsForAllThreadCounts) {
  const HostArray a = HostArray::random(Shape{700, 150}, DType::f32, 16);
  const HostArray b = right_hand(Shape{150}, DType::f32, 17);
  const HostArray one = right_hand(Shape{1}, DType::f32, 18);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    const Gradients d = backward(BinaryOp::mul, a, b, a);
    const Gradients e = backward(BinaryOp::mul, a, one, a);
    return std::vector<HostArray>{forward(BinaryOp::div, a, b), d.a, d.b, e.b};
  }));
}

TEST(Binary, NoRows_GiveAZeroGradientOfB) {
  const HostArray a(Shape{0, 4}, DType::f32);
  const HostArray b = HostArray::full(Shape{4}, DType::f32, 1.0);
  const Gradients d = backward(BinaryOp::mul, a, b, a);
  EXPECT_TRUE(test::same_bits(d.b, HostArray::full(Shape{4}, DType::f32, 0.0)));
}

TEST(Binary, BadArguments_NameWhatIsWrong) {
  HostArray a(Shape{2, 8}, DType::f32);
  HostArray y(Shape{2, 8}, DType::f32);
  const auto message = [&](const Binary& args) {
    return test::message_of_invalid([&] { binary(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.a = a, .b = HostArray(Shape{2}, DType::f32), .y = y}),
              HasSubstr("binary: shapes do not match: [2, 8] and [2]"));
  EXPECT_THAT(message({.a = a, .b = HostArray(Shape{8}, DType::bf16), .y = y}),
              HasSubstr("b must be f32, not bf16"));
  EXPECT_THAT(message({.a = a, .b = a.view().narrow(0, 0, 1).reshape(Shape{8}), .y = a}),
              HasSubstr("y and b must not overlap"));
  EXPECT_THAT(test::message_of_invalid([&] {
                binary_backward({.op = BinaryOp::mul, .b = a, .dy = a, .da = y},
                                test::test_stream());
              }),
              HasSubstr("a is missing"));
  EXPECT_THAT(test::message_of_invalid([&] {
                binary_backward({.b = a, .dy = y, .da = y, .db = a}, test::test_stream());
              }),
              HasSubstr("da must not be dy"));
}

TEST(Binary, CostAndMetaDevice) {
  HostArray a(Shape{4, 8}, DType::bf16);
  HostArray b(Shape{8}, DType::bf16);
  EXPECT_EQ(cost(Binary{.a = a, .b = b, .y = a}).bytes(), 64 + 16 + 64);
  EXPECT_EQ(cost(BinaryBackward{.b = b, .dy = a, .db = b}).bytes(), 64 + 16);
  const Device meta{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  const View nowhere(reinterpret_cast<void*>(64), DType::f32, Shape{1000}, meta);
  binary({.a = nowhere, .b = nowhere, .y = nowhere}, test::test_stream());
  binary_backward({.a = nowhere, .b = nowhere, .dy = nowhere, .da = nowhere}, test::test_stream());
}

}  // namespace binary_test
}  // namespace zinc::kernels
