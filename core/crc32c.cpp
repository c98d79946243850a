#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
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

// The map that applies `first`, then `second`.
constexpr BitMatrix chain(const BitMatrix& first, const BitMatrix& second) {
  BitMatrix both{};
  for (size_t bit = 0; bit < 32; ++bit) both[bit] = apply(second, first[bit]);
  return both;
}

// The map that `bytes` zero bytes apply to the remainder.
constexpr BitMatrix zero_bytes(uint64_t bytes) {
  BitMatrix result{};
  BitMatrix power{};  // the map of 1, 2, 4, ... zero bytes
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
// keep it busy. Lanes are joined by the map that appends kLaneBytes zero bytes to the bytes of a
// remainder. It is linear over bits, so a table per byte of the remainder holds it.
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

// Four registers of four lanes of 16 bytes each. In a lane, bits stand for a polynomial whose
// highest power is the lowest bit; what 256 further bytes make of it is the sum of its halves times
// x^(2048 + 32) and x^(2048 - 32), each modulo the CRC's polynomial (Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). So registers hold
// 256 bytes whose CRC is that of all bytes before them.
constexpr size_t kFoldedBytes = 256;

// x^power modulo the polynomial, for a product whose highest power is the lowest bit, too.
constexpr uint64_t folding_factor(int power) {
  uint32_t remainder = 0x80000000u;
  for (int i = 0; i < power; ++i) {
    remainder = (remainder >> 1) ^ ((remainder & 1u) != 0 ? kReflectedPolynomial : 0u);
  }
  return uint64_t{remainder} << 1;
}

constexpr auto kLowFactor = static_cast<int64_t>(folding_factor(8 * kFoldedBytes + 32));
constexpr auto kHighFactor = static_cast<int64_t>(folding_factor(8 * kFoldedBytes - 32));

__attribute__((target("avx512f,vpclmulqdq"))) uint32_t advance_by_folding(const std::byte* data,
                                                                          size_t size,
                                                                          uint32_t state) {
  if (size < 2 * kFoldedBytes) return advance_with_instruction(data, size, state);
  const __m512i factors = _mm512_set_epi64(kHighFactor, kLowFactor, kHighFactor, kLowFactor,
                                           kHighFactor, kLowFactor, kHighFactor, kLowFactor);
  const auto load = [&](size_t lane) __attribute__((target("avx512f,vpclmulqdq"))) {
    return _mm512_loadu_si512(data + 64 * lane);
  };
  const auto folded = [&](__m512i lane, __m512i next)
      __attribute__((target("avx512f,vpclmulqdq"))) {
    constexpr int kXorOfThree = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lane, factors, 0x00),
                                     _mm512_clmulepi64_epi128(lane, factors, 0x11), next,
                                     kXorOfThree);
  };
  __m512i first =
      _mm512_xor_si512(load(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i second = load(1);
  __m512i third = load(2);
  __m512i fourth = load(3);
  for (data += kFoldedBytes, size -= kFoldedBytes; size >= kFoldedBytes;
       data += kFoldedBytes, size -= kFoldedBytes) {
    first = folded(first, load(0));
    second = folded(second, load(1));
    third = folded(third, load(2));
    fourth = folded(fourth, load(3));
  }
  std::array<std::byte, kFoldedBytes> rest;
  _mm512_storeu_si512(rest.data(), first);
  _mm512_storeu_si512(rest.data() + 64, second);
  _mm512_storeu_si512(rest.data() + 128, third);
  _mm512_storeu_si512(rest.data() + 192, fourth);
  return advance_with_instruction(data, size,
                                  advance_with_instruction(rest.data(), rest.size(), 0));
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

uint32_t crc32c_by_instruction(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~advance_with_instruction(data.data(), data.size(), ~crc);
  }
#endif
  return crc32c_by_table(data, crc);
}

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
    return ~advance_by_folding(data.data(), data.size(), ~crc);
  }
#endif
  return crc32c_by_instruction(data, crc);
}

}  // namespace zinc
