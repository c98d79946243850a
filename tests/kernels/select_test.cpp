#include "kernels/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace select_test {

using test::HostArray;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                             DType::i64, DType::i32, DType::u8};

HostArray random_mask(const Shape& shape, uint64_t seed) {
  return HostArray::random(shape, DType::u8, seed, 0.0, 2.0);
}

TEST(Select, ArraysAndValues_BitForBit) {
  for (const DType dtype : kDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t n : test::kOddSizes) {
      const HostArray mask = random_mask(Shape{3, n}, 1);
      const HostArray a = HostArray::random(Shape{3, n}, dtype, 2, 1.0, 9.0);
      const HostArray b = HostArray::random(Shape{n}, dtype, 3, 1.0, 9.0);
      HostArray arrays(a.shape(), dtype);
      select({.mask = mask, .a = a, .b = b, .y = arrays}, test::test_stream());
      HostArray filled = a;
      select({.mask = mask, .a_value = 7.0, .b = filled, .y = filled}, test::test_stream());
      HostArray values(a.shape(), dtype);
      select({.mask = mask, .a_value = 1.0, .b_value = 2.0, .y = values}, test::test_stream());
      for (int64_t i = 0; i < a.numel(); ++i) {
        const bool holds = mask.at(i) != 0;
        ASSERT_EQ(arrays.at(i), holds ? a.at(i) : b.at(i % n)) << name_of(dtype) << i;
        ASSERT_EQ(filled.at(i), holds ? 7.0 : a.at(i)) << name_of(dtype) << i;
        ASSERT_EQ(values.at(i), holds ? 1.0 : 2.0) << name_of(dtype) << i;
      }
    }
  }
}

TEST(Select, MaskOfRowsAndStridedViews) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray mask = random_mask(Shape{4, 1}, 4);
    const HostArray a = HostArray::random(Shape{4, 33}, dtype, 5).with_padding(3);
    HostArray y = HostArray::strided(Shape{4, 33}, dtype, 5);
    select({.mask = mask, .a = a, .b_value = -1.0, .y = y}, test::test_stream());
    for (int64_t i = 0; i < a.numel(); ++i) {
      ASSERT_EQ(y.at(i), mask.at(i / 33) != 0 ? a.at(i) : -1.0) << i;
    }
  }
}

TEST(Select, BadArguments_NameWhatIsWrong) {
  const HostArray mask(Shape{2, 3}, DType::u8);
  const HostArray a(Shape{2, 3}, DType::f32);
  const HostArray ids(Shape{2, 3}, DType::i32);
  const auto message = [&](const Select& args) {
    return test::message_of_invalid([&] { select(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.mask = a, .a = a, .y = a}), HasSubstr("mask must be u8, not f32"));
  EXPECT_THAT(message({.mask = HostArray(Shape{2}, DType::u8), .a = a, .y = a}),
              HasSubstr("select: shapes do not match: [2] and [2, 3]"));
  EXPECT_THAT(message({.mask = mask, .a = ids, .y = a}), HasSubstr("must be f32, not i32"));
  EXPECT_THAT(message({.mask = mask, .a_value = 0.5, .y = ids}),
              HasSubstr("select: 0.5 is no value of i32"));
}

TEST(Select, CostAndMetaDevice) {
  const HostArray mask(Shape{4, 8}, DType::u8);
  const HostArray a(Shape{4, 8}, DType::bf16);
  EXPECT_EQ(cost(Select{.mask = mask, .a = a, .y = a}).bytes(), 32 + 64 + 64);
  select(
      {.mask = test::meta_view(Shape{9}, DType::u8), .y = test::meta_view(Shape{9}, DType::f32, 2)},
      test::test_stream());
}

}  // namespace select_test
}  // namespace zinc::kernels
