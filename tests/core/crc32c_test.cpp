#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace zinc {
namespace crc32c_test {

using Function = uint32_t (*)(std::span<const std::byte>, uint32_t);

class Crc32c : public testing::TestWithParam<Function> {
 protected:
  static uint32_t crc(std::span<const std::byte> data, uint32_t before = 0) {
    return GetParam()(data, before);
  }
};

constexpr std::array kPaths{"dispatched", "instruction", "table"};
INSTANTIATE_TEST_SUITE_P(Paths, Crc32c,
                         testing::Values(&crc32c, &crc32c_by_instruction, &crc32c_by_table),
                         [](const auto& info) { return kPaths[info.index]; });

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// RFC 3720, appendix B.4.
TEST_P(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  std::vector<std::byte> rising(32);
  std::vector<std::byte> falling(32);
  for (size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::byte>(i);
    falling[31 - i] = static_cast<std::byte>(i);
  }
  EXPECT_EQ(crc(rising), 0x46dd794eu);
  EXPECT_EQ(crc(falling), 0x113fdb5cu);
  EXPECT_EQ(crc(bytes_of({0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                          0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
                          0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
                          0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00})),
            0xd9963a56u);
}

TEST_P(Crc32c, CheckString) {
  constexpr std::string_view text = "123456789";
  EXPECT_EQ(crc(std::as_bytes(std::span(text))), 0xe3069283u);
}

TEST_P(Crc32c, NoBytes_ChangeNothing) {
  EXPECT_EQ(crc({}), 0u);
  EXPECT_EQ(crc({}, 0x12345678u), 0x12345678u);
}

// Computes the checksum by the definition: one bit at a time.
uint32_t by_bits(std::span<const std::byte> data) {
  uint32_t state = ~0u;
  for (const std::byte byte : data) {
    state ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
    }
  }
  return ~state;
}

TEST_P(Crc32c, RandomBytes_AtEveryLengthAndOffset_FollowTheDefinition) {
  std::mt19937 random(3);
  std::vector<std::byte> data(300);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t size = 0; size < 130; ++size) {
      const auto part = std::span(data).subspan(offset, size);
      ASSERT_EQ(crc(part), by_bits(part)) << offset << " " << size;
    }
  }
}

// Around the lengths at which folding, and lanes side by side, begin.
TEST_P(Crc32c, LongInput_FollowsTheDefinition) {
  std::mt19937 random(5);
  std::vector<std::byte> data(20'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (size_t size = 250; size < 20'000; size += 1 + size % 61) {
    const auto part = std::span(data).first(size);
    ASSERT_EQ(crc(part), by_bits(part)) << size;
  }
}

TEST_P(Crc32c, AnySplit_GivesTheSameValue) {
  std::mt19937 random(4);
  std::vector<std::byte> data(20'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const uint32_t whole = crc(data);
  for (int trial = 0; trial < 200; ++trial) {
    uint32_t value = 0;
    size_t begin = 0;
    while (begin < data.size()) {
      const size_t size = std::min<size_t>(random() % 7000, data.size() - begin);
      value = crc(std::span(data).subspan(begin, size), value);
      begin += size;
    }
    ASSERT_EQ(value, whole);
  }
}

TEST(Crc32cJoin, OfParts_IsThatOfTheWhole) {
  std::vector<std::byte> bytes(5000);
  std::mt19937 random(3);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(bytes);
  for (const size_t cut : {0, 1, 7, 1024, 4096, 4999, 5000}) {
    const Crc32cJoin join(static_cast<int64_t>(bytes.size() - cut));
    EXPECT_EQ(join(crc32c(all.first(cut)), crc32c(all.subspan(cut))), crc32c(all)) << cut;
  }
}

}  // namespace crc32c_test
}  // namespace zinc
