#include "core/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/float16.h"

namespace zinc {
namespace convert_test {

template <class To, class From>
std::vector<To> converted(std::vector<From> from, DType in, DType out) {
  std::vector<To> to(from.size());
  const Shape shape{std::ssize(from)};
  convert_elements(View(from.data(), in, shape, kCpu), View(to.data(), out, shape, kCpu));
  return to;
}

TEST(ConvertElements, WidensWithoutLossAndRoundsToEven) {
  const std::vector<bf16> narrow{bf16(1.0f), bf16(-0.0f), bf16(3.140625f), bf16(INFINITY)};
  EXPECT_EQ((converted<float>(narrow, DType::bf16, DType::f32)),
            (std::vector<float>{1.0f, -0.0f, 3.140625f, INFINITY}));
  // Half way between two numbers of 8 bits: to the even one.
  const std::vector<bf16> rounded =
      converted<bf16>(std::vector<float>{1.00390625f, 1.01171875f}, DType::f32, DType::bf16);
  EXPECT_EQ(static_cast<float>(rounded[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(rounded[1]), 1.015625f);
  EXPECT_EQ((converted<double>(std::vector<float>{0.1f}, DType::f32, DType::f64)),
            (std::vector<double>{double{0.1f}}));
}

// f64 to 16 bits by way of f32: what lies just above the half way in f64 is the half way in f32.
TEST(ConvertElements, OfF64To16Bits_RoundsTwice) {
  const std::vector<bf16> rounded =
      converted<bf16>(std::vector<double>{1.00390625 + 1e-12}, DType::f64, DType::bf16);
  EXPECT_EQ(static_cast<float>(rounded[0]), 1.0f);
}

TEST(ConvertElements, OtherDTypesAreCopiedOrRefused) {
  EXPECT_EQ((converted<int32_t>(std::vector<int32_t>{7, -1}, DType::i32, DType::i32)),
            (std::vector<int32_t>{7, -1}));
  EXPECT_THROW((converted<float>(std::vector<int32_t>{7}, DType::i32, DType::f32)),
               InvalidArgument);
}

}  // namespace convert_test
}  // namespace zinc
