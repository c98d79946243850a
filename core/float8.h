// core/float8.h: the two formats of 8 bits that tensor cores multiply (OCP, "8-bit Floating Point
// Specification", 2023), as grids on which wider numbers are rounded.
//
// Note [Scales of 8 bits]
// A tensor is multiplied with 2^e before it is rounded, where e is the largest exponent for which
// its largest magnitude stays in the format's range, and with 2^-e after: no rounding but that to
// the grid, and no value beyond the range. So what 8 bits hold is exact in bf16 too, and a product
// of two such tensors in bf16 is the product that tensor cores make of the 8 bits, up to the order
// of its sum.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"

namespace zinc {

enum class Fp8 : uint8_t {
  none,
  e4m3,  // 4 exponent and 3 mantissa bits, up to 448: activations and weights
  e5m2,  // 5 and 2, up to 57344: gradients
};

// The grid of a format: magnitudes up to 1.75 * 2^max_exponent.
struct Fp8Grid {
  int mantissa_bits;
  int min_exponent;  // least exponent of a normal number
  int max_exponent;
};
ZINC_HOST_DEVICE constexpr Fp8Grid grid_of(Fp8 format) {
  return format == Fp8::e4m3 ? Fp8Grid{3, -6, 8} : Fp8Grid{2, -14, 15};
}

ZINC_HOST_DEVICE inline float power_of_two(int exponent) {  // -126 to 127
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// e of Note [Scales of 8 bits] for this largest magnitude; 0 where it is 0, NaN or infinite. At
// most 100, so that values that are scaled back are not subnormal.
ZINC_HOST_DEVICE inline int fp8_scale_exponent(Fp8 format, float largest) {
  constexpr int kMost = 100;
  constexpr uint32_t kInfinity = 0x7f800000u, kMantissa = 0x007fffffu;
  constexpr uint32_t kThreeQuarters = 0x00600000u;  // mantissa of 1.75
  const uint32_t bits = std::bit_cast<uint32_t>(largest) & 0x7fffffffu;
  if (bits == 0 || bits >= kInfinity) return 0;
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const int fits = grid_of(format).max_exponent - exponent - ((bits & kMantissa) > kThreeQuarters);
  return fits < kMost ? fits : kMost;
}

// x, scaled by `scale_exponent`, rounded to the grid (to nearest even) and scaled back. NaN and
// infinities stay.
ZINC_HOST_DEVICE inline float round_to_fp8(Fp8 format, int scale_exponent, float x) {
  const Fp8Grid grid = grid_of(format);
  if ((std::bit_cast<uint32_t>(x) & 0x7f800000u) == 0x7f800000u) return x;
  float y = x * power_of_two(scale_exponent);
  const uint32_t bits = std::bit_cast<uint32_t>(y);
  if ((bits & 0x7fffffffu) < std::bit_cast<uint32_t>(power_of_two(grid.min_exponent))) {
    // The addition rounds: the sum's last place is a step of the grid below its normal numbers.
    const float step = 1.5f * power_of_two(23 + grid.min_exponent - grid.mantissa_bits);
    y = (y + step) - step;
  } else {
    const int dropped = 23 - grid.mantissa_bits;
    const uint32_t half = (1u << (dropped - 1)) - 1u + (bits >> dropped & 1u);
    y = std::bit_cast<float>((bits + half) & ~((1u << dropped) - 1u));
  }
  return y * power_of_two(-scale_exponent);
}

// The code of a number on the unscaled grid. A number beyond the range, a NaN or an infinity gets
// the code of the format's NaN.
ZINC_HOST_DEVICE inline uint8_t fp8_code(Fp8 format, float on_grid) {
  const Fp8Grid grid = grid_of(format);
  const uint32_t bits = std::bit_cast<uint32_t>(on_grid);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float size = std::bit_cast<float>(magnitude);
  if (!(size <= 1.75f * power_of_two(grid.max_exponent))) return sign | 0x7fu;
  if (size < power_of_two(grid.min_exponent)) {
    const float steps = size * power_of_two(grid.mantissa_bits - grid.min_exponent);
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(steps));
  }
  // An exponent of 1 is that of the smallest normal number.
  const uint32_t lowest = static_cast<uint32_t>(grid.min_exponent - 1 + 127);
  const int dropped = 23 - grid.mantissa_bits;
  return static_cast<uint8_t>(sign | ((magnitude >> dropped) - (lowest << grid.mantissa_bits)));
}

// The value of a code, without a scale.
ZINC_HOST_DEVICE inline float fp8_value(Fp8 format, uint8_t code) {
  const Fp8Grid grid = grid_of(format);
  const uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
  // The code of the largest number: all larger codes are NaN, or e5m2's infinity, which no number
  // is rounded to.
  const uint32_t largest = format == Fp8::e4m3 ? 0x7eu : 0x7bu;
  if (magnitude > largest) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >> grid.mantissa_bits == 0) {
    const float size =
        static_cast<float>(magnitude) * power_of_two(grid.min_exponent - grid.mantissa_bits);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
  }
  const uint32_t lowest = static_cast<uint32_t>(grid.min_exponent - 1 + 127);
  return std::bit_cast<float>(sign | (magnitude + (lowest << grid.mantissa_bits))
                                         << (23 - grid.mantissa_bits));
}

}  // namespace zinc
