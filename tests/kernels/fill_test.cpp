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
  EXPECT_EQ(cost(Fill{.y = ids}).bytes(), 64);
  fill({.y = test::meta_view(Shape{8}, DType::f32)}, test::test_stream());
}

}  // namespace fill_test
}  // namespace zinc::kernels
