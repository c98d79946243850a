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

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t advance_with_instruction(const std::byte* data,
                                                                    size_t size, uint32_t state) {
  uint64_t wide = state;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    state = _mm_crc32_u8(state, static_cast<unsigned char>(*data));
  }
  return state;
}
#endif

}  // namespace

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
