// kernels/state_codes.h: scales and codes of Note [States in 8 bits] in core/block_format.h, for
// the kernels that encode states.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/block_codes.h"
#include "core/host_device.h"

namespace zinc::kernels {

inline constexpr int64_t kStateBlock = 256;  // elements that share a scale
inline constexpr int64_t kBlocksPerChunk = kFormatChunk / kStateBlock;
// Of the two states of AdamW.
inline constexpr std::array kMomentFormats{BlockFormat::signed8, BlockFormat::unsigned8};

// The largest key of a block's values tells its scale: larger magnitudes have larger keys, +x a
// larger one than -x, infinities and NaNs the largest.
ZINC_HOST_DEVICE inline uint32_t scale_key(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits << 1 | bits >> 31) ^ 1u;
}
ZINC_HOST_DEVICE inline float scale_of(uint32_t largest_key) {
  const uint32_t magnitude = largest_key >> 1;
  if (magnitude == 0) return 0.0f;
  if (magnitude >= 0x7f800000u) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(magnitude | (~largest_key & 1u) << 31);
}
// Whether values are divided by the scale; otherwise all codes are 0.
ZINC_HOST_DEVICE inline bool divides(float scale) { return scale < 0.0f || scale > 0.0f; }

// Note [First code]
// The upper 16 bits of a magnitude in f32 are its exponent and 7 bits of its mantissa. Numbers that
// have them in common are at most 2^-7 of themselves apart, so at most one midpoint lies among
// them. A table says how many midpoints lie below the smallest of them; one comparison with the
// next midpoint finds the code. Magnitudes below 2^-23 are below all midpoints but that at 0.
// For vectors the two are one word: the upper half of (word + the magnitude's bits) is the code.
// For the word's upper half is the code less the magnitude's upper half, and its lower half carries
// where the magnitude's lower half is above the midpoint's. Without a midpoint it never does.
inline constexpr uint32_t kLowestUpperHalf = (127u - 23u) << 7;
inline constexpr size_t kNumUpperHalves = 23 * 128 + 1;  // to that of 1
// The number of values from 0 up.
constexpr int num_magnitudes(BlockFormat format) {
  return format == BlockFormat::signed8 ? 129 : 256;
}

// midpoints[i] lies above the i-th value from 0 up; behind the last one there is infinity.
struct MagnitudeCodes {
  std::array<float, 256> midpoints{};
  std::array<int32_t, kNumUpperHalves> first{};
  std::array<int32_t, kNumUpperHalves> words{};
};
constexpr MagnitudeCodes make_magnitude_codes(BlockFormat format) {
  MagnitudeCodes codes;
  const auto& values = byte_values(format);
  const auto count = static_cast<size_t>(num_magnitudes(format));
  for (float& midpoint : codes.midpoints) midpoint = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i + 1 < count; ++i) codes.midpoints[i] = (values[i] + values[i + 1]) / 2.0f;
  if (format == BlockFormat::unsigned8) codes.midpoints[0] = 0.0f;
  size_t code = 0;
  for (size_t i = 1; i < kNumUpperHalves; ++i) {
    const auto upper = static_cast<uint32_t>(i) + kLowestUpperHalf;
    while (std::bit_cast<float>(upper << 16) > codes.midpoints[code]) ++code;
    codes.first[i] = static_cast<int32_t>(code);
  }
  for (size_t i = 0; i < kNumUpperHalves; ++i) {
    // All magnitudes from 2^-23 on are above a midpoint at 0.
    auto first = static_cast<uint32_t>(codes.first[i]);
    if (codes.midpoints[first] == 0.0f) ++first;
    const auto next = std::bit_cast<uint32_t>(codes.midpoints[first]);
    const bool is_here = next >> 16 == static_cast<uint32_t>(i) + kLowestUpperHalf;
    const uint32_t upper = static_cast<uint32_t>(i) + kLowestUpperHalf;
    const uint32_t above = is_here ? 0xffffu - (next & 0xffffu) : 0u;
    codes.words[i] = static_cast<int32_t>(((first - upper) << 16) + above);
  }
  return codes;
}
inline constexpr MagnitudeCodes kSignedCodes = make_magnitude_codes(BlockFormat::signed8);
inline constexpr MagnitudeCodes kUnsignedCodes = make_magnitude_codes(BlockFormat::unsigned8);
constexpr const MagnitudeCodes& magnitude_codes(BlockFormat format) {
  return format == BlockFormat::signed8 ? kSignedCodes : kUnsignedCodes;
}

}  // namespace zinc::kernels
