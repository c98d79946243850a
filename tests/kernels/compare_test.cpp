#include "kernels/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace compare_test {

using test::HostArray;
using testing::HasSubstr;

constexpr CompareOp kOps[] = {
#define ZINC_ROW(name, ...) CompareOp::name,
    ZINC_COMPARE_OPS(ZINC_ROW)
#undef ZINC_ROW
};
constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                             DType::i64, DType::i32, DType::u8};

bool exact(CompareOp op, double a, double b) {
  switch (op) {
    case CompareOp::eq:
      return a == b;
    case CompareOp::ne:
      return a != b;
    case CompareOp::lt:
      return a < b;
    case CompareOp::le:
      return a <= b;
    case CompareOp::gt:
      return a > b;
    case CompareOp::ge:
      return a >= b;
    case CompareOp::logical_and:
      return a != 0 && b != 0;
    case CompareOp::logical_or:
      return a != 0 || b != 0;
  }
  return false;
}

TEST(Compare, EveryOpAndDtype_ArraysAndValues) {
  for (const CompareOp op : kOps) {
    for (const DType dtype : kDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t n : test::kOddSizes) {
        // Few values, so that equal ones meet.
        HostArray a = HostArray::random(Shape{2, n}, DType::i32, 1, 0.0, 3.0).as(dtype);
        HostArray b = HostArray::random(Shape{n}, DType::i32, 2, 0.0, 3.0).as(dtype);
        HostArray y(a.shape(), DType::u8);
        compare({.op = op, .a = a, .b = b, .y = y}, test::test_stream());
        HostArray with_value(a.shape(), DType::u8);
        compare({.op = op, .a = a, .b_value = 1.0, .y = with_value}, test::test_stream());
        for (int64_t i = 0; i < a.numel(); ++i) {
          ASSERT_EQ(y.at(i), exact(op, a.at(i), b.at(i % n)) ? 1 : 0)
              << name_of(op) << name_of(dtype) << a.at(i) << " " << b.at(i % n);
          ASSERT_EQ(with_value.at(i), exact(op, a.at(i), 1.0) ? 1 : 0) << name_of(op);
        }
      }
    }
  }
}

TEST(Compare, LargeIntegers_AreNotRounded) {
  const double large = 9007199254740992.0;  // 2^53
  HostArray a = HostArray::of({large - 1.0, large}, Shape{2}, DType::i64);
  HostArray y(Shape{2}, DType::u8);
  compare({.op = CompareOp::eq, .a = a, .b_value = large, .y = y}, test::test_stream());
  EXPECT_EQ(y.at(0), 0);
  EXPECT_EQ(y.at(1), 1);
}

TEST(Compare, NaN_IsUnequalAndNothingElse) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray a =
        HostArray::of({std::numeric_limits<double>::quiet_NaN(), 1.0}, Shape{2}, dtype);
    for (const CompareOp op : {CompareOp::eq, CompareOp::ne, CompareOp::lt, CompareOp::ge}) {
      HostArray y(Shape{2}, DType::u8);
      compare({.op = op, .a = a, .b = a, .y = y}, test::test_stream());
      EXPECT_EQ(y.at(0), op == CompareOp::ne ? 1 : 0);
      EXPECT_EQ(y.at(1), op == CompareOp::eq || op == CompareOp::ge ? 1 : 0);
    }
  }
}

TEST(Compare, BadArguments_NameWhatIsWrong) {
  const HostArray a(Shape{2, 3}, DType::f32);
  const HostArray y(Shape{2, 3}, DType::u8);
  const auto message = [&](const Compare& args) {
    return test::message_of_invalid([&] { compare(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.a = a, .b = HostArray(Shape{2}, DType::f32), .y = y}),
              HasSubstr("compare: shapes do not match: [2, 3] and [2]"));
  EXPECT_THAT(message({.a = a, .b = HostArray(Shape{3}, DType::f64), .y = y}),
              HasSubstr("b must be f32, not f64"));
  EXPECT_THAT(message({.a = a, .b = a, .y = a}), HasSubstr("y must be u8, not f32"));
  EXPECT_THAT(message({.a = HostArray(Shape{3}, DType::i32), .b_value = 0.5, .y = y}),
              HasSubstr("compare: 0.5 is no value of i32"));
}

TEST(Compare, CostAndMetaDevice) {
  const HostArray a(Shape{4, 8}, DType::bf16);
  const HostArray y(Shape{4, 8}, DType::u8);
  EXPECT_EQ(cost(Compare{.a = a, .b = a, .y = y}).bytes(), 64 + 64 + 32);
  EXPECT_EQ(cost(Compare{.a = a, .y = y}).bytes(), 64 + 32);
  compare(
      {.a = test::meta_view(Shape{9}, DType::f32), .y = test::meta_view(Shape{9}, DType::u8, 2)},
      test::test_stream());
}

}  // namespace compare_test
}  // namespace zinc::kernels
