// files/utf8.h: strict UTF-8 (Unicode 15, section 3.9, table 3-7): no overlong forms,
// no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zinc::files {

// Offset of the first byte that does not belong to a complete well-formed character.
std::optional<int64_t> first_invalid_utf8(std::span<const std::byte> bytes);
std::optional<int64_t> first_invalid_utf8(std::string_view text);

// Bytes of the well-formed character at the front of `text`: 1 to 4; 0 where there is none.
size_t utf8_character_length(std::string_view text);

// Well-formed text from any bytes: each maximal ill-formed part becomes one U+FFFD (the Unicode
// standard's recommended practice, what web browsers and Python do).
std::string replace_invalid_utf8(std::string_view bytes);

// The same for a stream of pieces: the pieces' results in a row equal the result of the whole.
class Utf8Stream {
 public:
  // Returns the characters that are complete after this piece; an unfinished character at its end
  // is kept back.
  std::string push(std::string_view bytes);
  // The rest, an unfinished character as U+FFFD. The stream starts anew.
  std::string finish();

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace zinc::files
