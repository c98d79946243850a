#include "text/precompiled_map.h"

#include <cstring>

#include "core/error.h"
#include "files/utf8.h"
#include "text/unicode/normal_form.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

// A unit of darts-clone's double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

PrecompiledMap::PrecompiledMap(std::string_view table) {
  uint32_t trie_bytes = 0;
  if (table.size() >= 4) std::memcpy(&trie_bytes, table.data(), 4);
  if (table.size() < 4 || trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > table.size() - 4) {
    throw DataError(str("a precompiled map of ", table.size(), " bytes announces a trie of ",
                        trie_bytes, " bytes"));
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), table.data() + 4, trie_bytes);
  replacements_ = table.substr(4 + trie_bytes);
  if (files::first_invalid_utf8(replacements_)) {
    throw DataError("the replacements of a precompiled map are not UTF-8");
  }
  if (!replacements_.ends_with('\0')) replacements_ += '\0';
}

std::optional<std::string_view> PrecompiledMap::find(std::string_view text) const {
  uint32_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size()) return std::nullopt;
    const uint32_t begin = value_of(units_[at]);
    if (begin >= replacements_.size()) return std::nullopt;
    // A place inside a character would make text that is no UTF-8.
    if ((static_cast<unsigned char>(replacements_[begin]) & 0xC0) == 0x80) return std::nullopt;
    return std::string_view(replacements_.data() + begin);
  }
  return std::nullopt;
}

std::string PrecompiledMap::apply(std::string_view text) const {
  constexpr size_t kShortCluster = 6;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, grapheme_length(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() < kShortCluster) {
      if (const auto replacement = find(cluster)) {
        out += *replacement;
        continue;
      }
    }
    for (size_t at = 0; at < cluster.size();) {
      const size_t begin = at;
      next_character(cluster, at);
      const std::string_view character = cluster.substr(begin, at - begin);
      out += find(character).value_or(character);
    }
  }
  return out;
}

}  // namespace zinc::text
