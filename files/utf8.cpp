#include "files/utf8.h"

#include <cstring>
#include <utility>

namespace zinc::files {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The part at the start of `text`: a character, or a maximal ill-formed part.
struct Utf8Part {
  size_t length;  // bytes of the part
  bool valid;
  bool cut_short;  // well-formed as far as it goes, but the text ends
};

struct LeadByte {
  size_t length;      // bytes of the character; 0: not a lead byte
  uint8_t low, high;  // range of the second byte
};

LeadByte lead_byte(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

Utf8Part next_piece(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {1, true, false};
  const LeadByte lead = lead_byte(byte(0));
  if (lead.length == 0) return {1, false, false};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {i, false, true};
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {i, false, false};
  }
  return {lead.length, true, false};
}

// Length of the ASCII run at the start, found eight bytes at a time.
size_t ascii_run(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

size_t utf8_character_length(std::string_view text) {
  if (text.empty()) return 0;
  const Utf8Part piece = next_piece(text);
  return piece.valid ? piece.length : 0;
}

std::optional<int64_t> first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    at += ascii_run(text.substr(at));
    if (at == text.size()) break;
    const Utf8Part piece = next_piece(text.substr(at));
    if (!piece.valid) return static_cast<int64_t>(at);
    at += piece.length;
  }
  return std::nullopt;
}

std::optional<int64_t> first_invalid_utf8(std::span<const std::byte> bytes) {
  return first_invalid_utf8(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string replace_invalid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text += stream.finish();
}

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string all = std::exchange(pending_, {}) + std::string(bytes);
  std::string_view rest = all;
  std::string text;
  text.reserve(all.size());
  while (!rest.empty()) {
    const Utf8Part piece = next_piece(rest);
    if (piece.cut_short) {
      pending_ = rest;
      break;
    }
    text += piece.valid ? rest.substr(0, piece.length) : kReplacement;
    rest.remove_prefix(piece.length);
  }
  return text;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !std::exchange(pending_, {}).empty();
  return unfinished ? std::string(kReplacement) : std::string();
}

}  // namespace zinc::files
