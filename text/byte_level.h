// text/byte_level.h: bytes as printable characters, as in GPT-2's vocabulary.
//
// Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are the characters of those numbers; the other 68 are
// U+0100, U+0101, ... in order, so that a space is U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zinc::text {

std::string bytes_to_characters(std::string_view bytes);
// Empty where a character stands for no byte.
std::optional<std::string> characters_to_bytes(std::string_view text);

}  // namespace zinc::text
