// text/unicode/unicode.h: the characters of UTF-8 text and their kinds.
//
// Text is well-formed UTF-8 throughout (files/utf8.h repairs other text).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::text {

// The character at `at`, which must begin one; `at` moves behind it.
inline char32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = (char32_t{lead} & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = (char32_t{lead} & 0x0F) << 12 | (char32_t{byte(1)} & 0x3F) << 6 |
                       (char32_t{byte(2)} & 0x3F);
    at += 3;
    return c;
  }
  const char32_t c = (char32_t{lead} & 0x07) << 18 | (char32_t{byte(1)} & 0x3F) << 12 |
                     (char32_t{byte(2)} & 0x3F) << 6 | (char32_t{byte(3)} & 0x3F);
  at += 4;
  return c;
}

// The beginning of the character that ends at `end`; end > 0.
inline size_t character_before(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

void append_utf8(std::string& out, char32_t character);
std::string to_utf8(char32_t character);

// The kinds of a character for Hugging Face's tokenizers: one bit for each table of
// text/unicode/unicode_ranges.h. A character has several.
enum CharacterKind : uint16_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kWordCharacter = 8,
  kNumeric = 16,
  kPunctuation = 32,
  kCleaned = 64,
  kBertAccent = 128,
  kAccent = 256,
  kYounger = 512,
};

// Bits of CharacterKind. A table that is made once in a process, at the first call.
class CharacterTable {
 public:
  static const CharacterTable& get();
  uint16_t kinds(char32_t c) const {
    return c < 0x110000 ? pages_[(size_t{page_of_[c >> 7]} << 7) + (c & 127)] : uint16_t{0};
  }
  bool is(char32_t c, uint16_t kind) const { return (kinds(c) & kind) != 0; }

 private:
  CharacterTable();
  std::vector<uint16_t> page_of_;  // page of each 128 characters
  std::vector<uint16_t> pages_;    // equal pages are kept once
};

// The lower case of each character, without rules that look at neighbours.
std::string lower_case(std::string_view text);

}  // namespace zinc::text
