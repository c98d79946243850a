#include "core/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace zinc {
namespace float16_test {

// A format with `mantissa` explicit bits, exponents down to `min_exponent` (of the smallest normal
// number) and a largest finite value. Rounds x to the nearest number of the format, ties to even,
// in f64: scaled by the unit in the last place, which f64 holds exactly, and rounded by nearbyint.
double nearest(double x, int mantissa, int min_exponent, double largest) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent - 1), 2^exponent)
  const int unit = std::max(exponent - 1, min_exponent) - mantissa;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  if (std::fabs(rounded) > largest) return std::copysign(HUGE_VAL, x);
  return rounded == 0 ? std::copysign(0.0, x) : rounded;
}

template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int mantissa = 7;
  static constexpr int min_exponent = -126;
  static constexpr double largest = 0x1.fep127;
};
template <>
struct Format<f16> {
  static constexpr int mantissa = 10;
  static constexpr int min_exponent = -14;
  static constexpr double largest = 65504;
};

template <class T>
float widened(uint16_t bits) {
  T value;
  value.bits = bits;
  return static_cast<float>(value);
}

// The value of the bits, by the definition of the format.
template <class T>
double value_of(uint16_t bits) {
  using F = Format<T>;
  const int exponent_bits = 15 - F::mantissa;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> F::mantissa) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << F::mantissa) - 1);
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  }
  const int hidden = exponent == 0 ? 0 : 1 << F::mantissa;
  const int scale = std::max(exponent, 1) - 1 + F::min_exponent - F::mantissa;
  return sign * std::ldexp(hidden + fraction, scale);
}

template <class T>
void expect_nearest(float x) {
  using F = Format<T>;
  const float got = static_cast<float>(T(x));
  const double want = nearest(x, F::mantissa, F::min_exponent, F::largest);
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(got)) << std::hex << std::bit_cast<uint32_t>(x);
    return;
  }
  ASSERT_EQ(static_cast<double>(got), want) << std::hex << std::bit_cast<uint32_t>(x);
  ASSERT_EQ(std::signbit(got), std::signbit(x)) << std::hex << std::bit_cast<uint32_t>(x);
}

template <class T>
class Float16 : public testing::Test {};
using Formats = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(Float16, Formats);

TYPED_TEST(Float16, Widen_EveryPattern_IsItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float wide = widened<TypeParam>(pattern);
    const double want = value_of<TypeParam>(pattern);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide), want) << bits;
      ASSERT_EQ(std::signbit(wide), std::signbit(want)) << bits;
    }
  }
}

TYPED_TEST(Float16, WidenThenRound_EveryPattern_IsTheSamePattern) {
  constexpr uint16_t kQuietBit = uint16_t{1} << (Format<TypeParam>::mantissa - 1);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float wide = widened<TypeParam>(pattern);
    const uint16_t back = TypeParam(wide).bits;
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(widened<TypeParam>(back))) << bits;
      ASSERT_EQ(back & 0x8000, pattern & 0x8000) << bits;
      ASSERT_NE(back & kQuietBit, 0) << bits;
    } else {
      ASSERT_EQ(back, pattern);
    }
  }
}

// Every boundary between two neighbours, the f32 numbers around it, and the f32 numbers around
// every number of the format.
TYPED_TEST(Float16, Round_AroundEveryBoundary_IsNearestEven) {
  for (uint32_t bits = 0; bits < 0x7fff; ++bits) {
    const double low = value_of<TypeParam>(static_cast<uint16_t>(bits));
    const double high = value_of<TypeParam>(static_cast<uint16_t>(bits + 1));
    if (std::isnan(low) || std::isnan(high) || std::isinf(low)) continue;
    // Infinity stands where the next finite number would be.
    const double next = std::isinf(high)
                            ? low + std::ldexp(1.0, std::ilogb(low) - Format<TypeParam>::mantissa)
                            : high;
    for (const double centre : {low, (low + next) / 2}) {
      const auto middle = static_cast<float>(centre);
      for (const float sign : {1.0f, -1.0f}) {
        expect_nearest<TypeParam>(sign * middle);
        expect_nearest<TypeParam>(sign * std::nextafterf(middle, HUGE_VALF));
        expect_nearest<TypeParam>(sign * std::nextafterf(middle, -HUGE_VALF));
      }
    }
  }
}

TYPED_TEST(Float16, Round_RandomBits_IsNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i)
    expect_nearest<TypeParam>(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

// The exponents of the format's subnormal numbers, which random bits hit seldom.
TYPED_TEST(Float16, Round_SubnormalResults_IsNearestEven) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> mantissa(1.0f, 2.0f);
  for (int i = 0; i < 500'000; ++i) {
    const int below = static_cast<int>(random() % (Format<TypeParam>::mantissa + 4));
    const float x = std::ldexp(mantissa(random), Format<TypeParam>::min_exponent - below);
    expect_nearest<TypeParam>(x);
    expect_nearest<TypeParam>(-x);
  }
}

TYPED_TEST(Float16, Round_Extremes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x :
       {0.0f, 1.0f, kInf, std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
        std::numeric_limits<float>::denorm_min(), 65504.0f, 65519.99f, 65520.0f, 0x1p-24f, 0x1p-25f,
        std::nextafterf(0x1p-25f, 1.0f), 0x1p-133f, 0x1p-134f}) {
    expect_nearest<TypeParam>(x);
    expect_nearest<TypeParam>(-x);
  }
}

// All NaNs of f32, signalling ones and those whose payload lies below the format's bits included.
TYPED_TEST(Float16, Round_NaN_IsAQuietNaNOfTheSameSign) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu, 0x7f80ffffu,
                              0x7fbfffffu, 0xff801000u, 0x7fffffffu}) {
    const TypeParam rounded(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(static_cast<float>(rounded))) << std::hex << bits;
    EXPECT_EQ(rounded.bits >> 15, bits >> 31) << std::hex << bits;
  }
}

}  // namespace float16_test
}  // namespace zinc
