#include "text/scores/characters.h"

#include <algorithm>

#include "files/utf8.h"

namespace zinc::text {

size_t CharactersOf::Iterator::length() const {
  return std::max<size_t>(files::utf8_character_length(rest_), 1);
}

uint32_t code_point_of(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(character[i]));
  };
  if (character.size() == 1) return byte(0);
  uint32_t point = byte(0) & (0xffu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte(i) & 0x3fu);
  return point;
}

bool is_white_space(std::string_view character) {
  const uint32_t c = code_point_of(character);
  if (character.size() == 1) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string ascii_of_lower_case(std::string_view character) {
  if (character == "\u212a") return "k";
  if (character == "\u0130") return "i";
  if (character.size() != 1) return {};
  const char c = character[0];
  if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return {c};
  if (c >= 'A' && c <= 'Z') return {static_cast<char>(c - 'A' + 'a')};
  return {};
}

}  // namespace zinc::text
