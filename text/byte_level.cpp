#include "text/byte_level.h"

#include <array>

#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr int kNumStandIns = 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteMap {
  std::array<char32_t, 256> character_of;
  std::array<unsigned char, kNumStandIns> byte_of;  // byte of the character kFirstStandIn + i
};

constexpr ByteMap kByteMap = [] {
  ByteMap map{};
  int stand_ins = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<size_t>(byte);
    if (stands_for_itself(byte)) {
      map.character_of[i] = static_cast<char32_t>(byte);
    } else {
      map.byte_of[static_cast<size_t>(stand_ins)] = static_cast<unsigned char>(byte);
      map.character_of[i] = kFirstStandIn + static_cast<char32_t>(stand_ins++);
    }
  }
  return map;
}();

}  // namespace

std::string bytes_to_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char byte : bytes) {
    append_utf8(text, kByteMap.character_of[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> characters_to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c < kFirstStandIn && stands_for_itself(static_cast<int>(c))) {
      bytes += static_cast<char>(c);
    } else if (c >= kFirstStandIn && c < kFirstStandIn + kNumStandIns) {
      bytes += static_cast<char>(kByteMap.byte_of[c - kFirstStandIn]);
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace zinc::text
