#include "core/crc32.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {
namespace crc32_test {

uint32_t crc_of(std::string_view text, uint32_t before = 0) {
  return crc32(std::as_bytes(std::span(text)), before);
}

// The check value of the CRC catalogues, and what zip files say of empty entries.
TEST(Crc32, KnownAnswers) {
  EXPECT_EQ(crc_of("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc_of(""), 0u);
  EXPECT_EQ(crc_of("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
}

TEST(Crc32, Pieces_ContinueEachOther) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc_of(std::string_view(text).substr(cut), crc_of(text.substr(0, cut))),
              crc_of(text));
  }
}

}  // namespace crc32_test
}  // namespace zinc
