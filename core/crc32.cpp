#include "core/crc32.h"

#include <array>

namespace zinc {
namespace {

using ZipTable = std::array<uint32_t, 256>;

// Table k: the effect of a byte on the checksum once k more bytes, all zero, have followed it.
constexpr std::array<ZipTable, 8> zip_tables() {
  constexpr uint32_t kReflected = 0xEDB88320;
  std::array<ZipTable, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflected : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr std::array<ZipTable, 8> kZipTables = zip_tables();

}  // namespace

uint32_t crc32(std::span<const std::byte> data, uint32_t crc) {
  uint32_t value = ~crc;
  while (data.size() >= 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t mixed = i < 4 ? (value >> (8 * i)) & 0xff : 0;
      next ^= kZipTables[7 - i][static_cast<uint32_t>(data[i]) ^ mixed];
    }
    value = next;
    data = data.subspan(8);
  }
  for (const std::byte byte : data) {
    value = (value >> 8) ^ kZipTables[0][(value ^ static_cast<uint32_t>(byte)) & 0xff];
  }
  return ~value;
}

}  // namespace zinc
