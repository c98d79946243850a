#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace zinc {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read low byte first");

constexpr uint32_t kReflectedPolynomial = 0x82F63B78u;

// table[k][b]: what byte b does to the remainder when k more bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t remainder = b;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1u) != 0 ? kReflectedPolynomial : 0u);
    }
    table[0][b] = remainder;
  }
  for (size_t k = 1; k < table.size(); ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t shorter = table[k - 1][b];
      table[k][b] = (shorter >> 8) ^ table[0][shorter & 0xffu];
    }
  }
  return table;
}

constexpr Tables kTables = make_tables();

uint32_t advance_with_table(const std::byte* data, size_t size, uint32_t state) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    word ^= state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xffu];
  }
  for (; size > 0; ++data, --size) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<uint32_t>(*data)) & 0xffu];
  }
  return state;
}

using BitMatrix = std::array<uint32_t, 32>;  // the images of the 32 bits

constexpr uint32_t apply(const BitMatrix& matrix, uint32_t state) {
  uint32_t image = 0;
  for (size_t bit = 0; bit < 32; ++bit) {
    if (((state >> bit) & 1u) != 0) image ^= matrix[bit];
  }
  return image;
}

// `first`, then `second`.
constexpr BitMatrix chain(const BitMatrix& first, const BitMatrix& second) {
  BitMatrix both{};
  for (size_t bit = 0; bit < 32; ++bit) both[bit] = apply(second, first[bit]);
  return both;
}

// What `bytes` zero bytes do to the remainder.
constexpr BitMatrix zero_bytes(uint64_t bytes) {
  BitMatrix result{};
  BitMatrix power{};  // of 1, 2, 4, ... zero bytes
  for (size_t bit = 0; bit < 32; ++bit) {
    const uint32_t state = 1u << bit;
    result[bit] = state;
    power[bit] = (state >> 8) ^ kTables[0][state & 0xffu];
  }
  for (; bytes > 0; bytes /= 2) {
    if (bytes % 2 == 1) result = chain(result, power);
    power = chain(power, power);
  }
  return result;
}

#if defined(__x86_64__)

// The instruction has a latency of three cycles and starts every cycle: three lanes side by side
// keep it busy. Lanes are joined by the map that appends kLaneBytes zero bytes to what a remainder
// stands for. It is linear over bits, so a table per byte of the remainder holds it.
constexpr size_t kLaneBytes = 1024;
using ShiftTables = std::array<std::array<uint32_t, 256>, 4>;
constexpr ShiftTables make_shift_tables() {
  const BitMatrix matrix = zero_bytes(kLaneBytes);
  ShiftTables tables{};
  for (size_t k = 0; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) tables[k][b] = apply(matrix, b << (8 * k));
  }
  return tables;
}

constexpr ShiftTables kShiftTables = make_shift_tables();

uint32_t shift_by_lane(uint32_t state) {
  return kShiftTables[0][state & 0xffu] ^ kShiftTables[1][(state >> 8) & 0xffu] ^
         kShiftTables[2][(state >> 16) & 0xffu] ^ kShiftTables[3][state >> 24];
}

uint64_t word_at(const std::byte* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t advance_with_instruction(const std::byte* data,
                                                                    size_t size, uint32_t state) {
  for (; size >= 3 * kLaneBytes; data += 3 * kLaneBytes, size -= 3 * kLaneBytes) {
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      first = _mm_crc32_u64(first, word_at(data + i));
      second = _mm_crc32_u64(second, word_at(data + kLaneBytes + i));
      third = _mm_crc32_u64(third, word_at(data + 2 * kLaneBytes + i));
    }
    state = shift_by_lane(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    state = shift_by_lane(state) ^ static_cast<uint32_t>(third);
  }
  uint64_t wide = state;
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, word_at(data));
  state = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    state = _mm_crc32_u8(state, static_cast<unsigned char>(*data));
  }
  return state;
}

#endif

}  // namespace

Crc32cJoin::Crc32cJoin(int64_t later_bytes)
    : shift_(zero_bytes(static_cast<uint64_t>(later_bytes))) {}

uint32_t Crc32cJoin::operator()(uint32_t earlier, uint32_t later) const {
  return apply(shift_, earlier) ^ later;
}

uint32_t crc32c_by_table(std::span<const std::byte> data, uint32_t crc) {
  return ~advance_with_table(data.data(), data.size(), ~crc);
}

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~advance_with_instruction(data.data(), data.size(), ~crc);
  }
#endif
  return crc32c_by_table(data, crc);
}

}  // namespace zinc
