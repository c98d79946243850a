#include "core/dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace zinc {
namespace dtype_test {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};

template <class T>
void expect_type(DType dtype, std::string_view name, bool floating) {
  EXPECT_EQ(kDTypeOf<T>, dtype);
  EXPECT_EQ(size_of(dtype), static_cast<int64_t>(sizeof(T)));
  EXPECT_EQ(name_of(dtype), name);
  EXPECT_EQ(is_float(dtype), floating);
  EXPECT_EQ(is_16bit_float(dtype), floating && sizeof(T) == 2);
}

TEST(DType, SizeNameAndClass_FollowTheCppType) {
  expect_type<double>(DType::f64, "f64", true);
  expect_type<float>(DType::f32, "f32", true);
  expect_type<bf16>(DType::bf16, "bf16", true);
  expect_type<f16>(DType::f16, "f16", true);
  expect_type<int64_t>(DType::i64, "i64", false);
  expect_type<int32_t>(DType::i32, "i32", false);
  expect_type<uint8_t>(DType::u8, "u8", false);
}

TEST(DType, Accumulator_IsF32ExceptForF64) {
  static_assert(std::is_same_v<AccumulatorOf<double>, double>);
  static_assert(std::is_same_v<AccumulatorOf<float>, float>);
  static_assert(std::is_same_v<AccumulatorOf<bf16>, float>);
  static_assert(std::is_same_v<AccumulatorOf<f16>, float>);
}

TEST(DType, Parse_OwnNames_RoundTrip) {
  for (const DType dtype : kAll) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
}

TEST(DType, Parse_OtherSpellings_InAnyCase) {
  EXPECT_EQ(parse_dtype("fp32"), DType::f32);
  EXPECT_EQ(parse_dtype("F32"), DType::f32);
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_EQ(parse_dtype("Float"), DType::f32);
  EXPECT_EQ(parse_dtype("FP16"), DType::f16);
  EXPECT_EQ(parse_dtype("half"), DType::f16);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("BF16"), DType::bf16);
  EXPECT_EQ(parse_dtype("double"), DType::f64);
  EXPECT_EQ(parse_dtype("long"), DType::i64);
  EXPECT_EQ(parse_dtype("U8"), DType::u8);
}

TEST(DType, Parse_Unknown_IsAbsent) {
  for (const char* name : {"", "f", "f128", "bf16 ", "int", "torch.float32"}) {
    EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
  }
}

TEST(DType, DispatchFloat_CallsWithTheType) {
  for (const DType dtype : kAll) {
    const auto size = [&] { return dispatch_float(dtype, []<class T>() { return kDTypeOf<T>; }); };
    if (is_float(dtype)) {
      EXPECT_EQ(size(), dtype);
    } else {
      EXPECT_THROW(size(), InvalidArgument);
    }
  }
}

TEST(DType, DispatchIndex_CallsWithTheType) {
  for (const DType dtype : kAll) {
    const auto size = [&] { return dispatch_index(dtype, []<class T>() { return kDTypeOf<T>; }); };
    if (dtype == DType::i32 || dtype == DType::i64) {
      EXPECT_EQ(size(), dtype);
    } else {
      EXPECT_THROW(size(), InvalidArgument);
    }
  }
}

}  // namespace dtype_test
}  // namespace zinc
