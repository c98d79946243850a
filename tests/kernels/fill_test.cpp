#include "kernels/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace fill_test {

using test::HostArray;
using testing::HasSubstr;

TEST(Fill, EveryDType_WritesTheRoundedValueAndNoPadding) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    for (const int64_t n : test::kOddSizes) {
      const double value = is_float(dtype) ? 0.1 : 77.0;
      HostArray y = HostArray::strided(Shape{3, n}, dtype, 5);
      const std::vector<std::byte> before = y.bytes();
      fill({.y = y, .value = value}, test::test_stream());
      const HostArray expected = HostArray::full(Shape{3, n}, dtype, value);
      ASSERT_TRUE(test::same_bits(y, expected)) << name_of(dtype) << " " << n;
      const std::vector<std::byte> after = y.bytes();
      const auto size = static_cast<size_t>(size_of(dtype));
      for (size_t i = 0; i < after.size(); ++i) {
        const size_t column = i / size % static_cast<size_t>(n + 5);
        if (column >= static_cast<size_t>(n)) {
          ASSERT_EQ(after[i], before[i]);
        }
      }
    }
  }
}

// More than one launch takes, longer than a block, and one of no elements.
TEST(Fill, Pieces_AreWrittenAlone) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::u8}) {
    HostArray y = HostArray::full(Shape{40000}, dtype, 3.0), expected = y;
    std::vector<TensorSlice::Piece> pieces{{7, 2100}, {2500, 0}};
    for (int64_t i = 0; i < 200; ++i) pieces.push_back({3000 + i * 181, i % 180 + 1});
    for (const auto& [begin, count] : pieces) {
      for (int64_t i = begin; i < begin + count; ++i) expected.set(i, 7.0);
    }
    fill({.y = y, .value = 7.0, .pieces = pieces}, test::test_stream());
    EXPECT_TRUE(test::same_bits(y, expected)) << name_of(dtype);
  }
}

TEST(Fill, LargeIntegers_AreExact) {
  HostArray y(Shape{2}, DType::i64);
  fill({.y = y, .value = -0x1p63}, test::test_stream());
  EXPECT_EQ(*y.on_host().data_as<int64_t>(), INT64_MIN);
}

TEST(Fill, BadArgumentsCostAndMetaDevice) {
  HostArray bytes(Shape{8}, DType::u8);
  HostArray ids(Shape{8}, DType::i64);
  const auto message = [&](const Fill& args) {
    return test::message_of_invalid([&] { fill(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.y = bytes, .value = 256.0}), HasSubstr("256 is no value of u8"));
  EXPECT_THAT(message({.y = bytes, .value = 0.5}), HasSubstr("0.5 is no value of u8"));
  EXPECT_THAT(message({.y = ids, .value = 0x1p63}), HasSubstr("is no value of i64"));
  EXPECT_THAT(message({.y = bytes, .pieces = {{7, 2}}}), HasSubstr("elements [7, 9) of 8"));
  EXPECT_EQ(cost(Fill{.y = ids}).bytes(), 64);
  EXPECT_EQ(cost(Fill{.y = ids, .pieces = {{1, 2}, {4, 1}}}).bytes(), 24);
  fill({.y = test::meta_view(Shape{8}, DType::f32)}, test::test_stream());
}

}  // namespace fill_test
}  // namespace zinc::kernels
