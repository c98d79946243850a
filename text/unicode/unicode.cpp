#include "text/unicode/unicode.h"

#include <algorithm>
#include <map>
#include <utility>

#include "text/unicode/unicode_ranges.h"

namespace zinc::text {
namespace {

constexpr size_t kPageSize = 128;
constexpr char32_t kDottedCapitalI = 0x130;

char32_t lower_of(std::span<const LowerRun> runs, char32_t c) {
  const auto after = std::upper_bound(
      runs.begin(), runs.end(), c, [](char32_t x, const LowerRun& run) { return x < run.first; });
  if (after == runs.begin()) return c;
  const LowerRun& run = *(after - 1);
  if (c > run.last || (c - run.first) % static_cast<char32_t>(run.step) != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + run.delta);
}

}  // namespace

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  const auto follow = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    follow(0);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    follow(6);
    follow(0);
  } else {
    put(0xF0 | c >> 18);
    follow(12);
    follow(6);
    follow(0);
  }
}

std::string to_utf8(char32_t character) {
  std::string text;
  append_utf8(text, character);
  return text;
}

CharacterTable::CharacterTable() {
  const UnicodeRanges ranges = unicode_ranges();
  const std::pair<std::span<const CharacterRange>, uint16_t> tables[] = {
      {ranges.letters, kLetter},   {ranges.numbers, kNumber},
      {ranges.spaces, kSpace},     {ranges.words, kWordCharacter},
      {ranges.numerics, kNumeric}, {ranges.punctuation, kPunctuation},
      {ranges.cleaned, kCleaned},  {ranges.bert_accents, kBertAccent},
      {ranges.accents, kAccent},   {ranges.younger, kYounger}};
  std::vector<uint16_t> all(0x110000, 0);
  for (const auto& [table, bit] : tables) {
    for (const CharacterRange& range : table) {
      for (char32_t c = range.first; c <= range.last; ++c) all[c] |= bit;
    }
  }
  std::map<std::vector<uint16_t>, uint16_t> seen;
  for (size_t begin = 0; begin < all.size(); begin += kPageSize) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<uint16_t> page(first, first + kPageSize);
    const auto [found, is_new] = seen.try_emplace(page, static_cast<uint16_t>(seen.size()));
    if (is_new) pages_.insert(pages_.end(), page.begin(), page.end());
    page_of_.push_back(found->second);
  }
}

const CharacterTable& CharacterTable::get() {
  static const CharacterTable table;
  return table;
}

std::string lower_case(std::string_view text) {
  const std::span<const LowerRun> runs = unicode_ranges().lower;
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c < 0x80) {
      lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == kDottedCapitalI) {
      lower += "i\xCC\x87";
    } else {
      append_utf8(lower, lower_of(runs, c));
    }
  }
  return lower;
}

}  // namespace zinc::text
