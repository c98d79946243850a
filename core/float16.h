// core/float16.h: the two 16-bit float formats, as storage types with exact conversions.
//
// Conversion from f32 rounds to nearest, ties to even, in integer arithmetic, so that every
// device and ISA gives the same bits (the bf16 hardware instruction flushes denormals).
// NaN stays NaN (quiet); values beyond the range become infinity. Arithmetic is done in f32.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"

namespace zinc {

// bfloat16: 1 sign, 8 exponent, 7 mantissa bits.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  ZINC_HOST_DEVICE explicit bf16(float value) : bits(round_from(value)) {}
  ZINC_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }

  ZINC_HOST_DEVICE static uint16_t round_from(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits.
struct f16 {
  uint16_t bits = 0;

  f16() = default;
  ZINC_HOST_DEVICE explicit f16(float value) : bits(round_from(value)) {}
  ZINC_HOST_DEVICE explicit operator float() const { return widen(bits); }

  ZINC_HOST_DEVICE static uint16_t round_from(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
    if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
      // Adding 0.5 shifts the value so that the units of the sum's last place are 2^-24 and the
      // f32 addition itself rounds to nearest even.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  ZINC_HOST_DEVICE static float widen(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16;
    const uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) {
      return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    }
    if (magnitude < 0x0400u) {
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

// An f32 that rounds to the same bf16 and f16 as `value` does: an inexact result is rounded to the
// neighbour with an odd last bit, so that the second rounding sees that something was cut off.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away_from_zero = value < 0 ? back < value : back > value;
  if (away_from_zero) bits -= 1;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace zinc
