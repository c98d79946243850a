#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "text/unicode/normal_form.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

// Reorders and composes `characters` (already decomposed and in order of the text), and appends
// them.
void finish_segment(std::vector<utf8proc_int32_t>& characters, bool compose, std::string& out) {
  if (characters.empty()) return;
  // Canonical order: runs of combining characters by class, stably.
  const auto rank = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto it = characters.begin(); it != characters.end();) {
    if (rank(*it) == 0) {
      ++it;
      continue;
    }
    auto end = it;
    while (end != characters.end() && rank(*end) != 0) ++end;
    std::stable_sort(it, end, [&](auto a, auto b) { return rank(a) < rank(b); });
    it = end;
  }
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (compose) {
    count = utf8proc_normalize_utf32(
        characters.data(), count,
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    bug_check(count >= 0, "utf8proc: ", count);
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(characters[static_cast<size_t>(i)]));
  }
  characters.clear();
}

}  // namespace

void require_normal_forms(std::string_view) {}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  const CharacterTable& table = CharacterTable::get();
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> segment;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (table.is(c, kYounger)) {
      finish_segment(segment, compose, out);
      append_utf8(out, c);
      continue;
    }
    // ASCII neither decomposes nor combines with what stands before it.
    if (c < 0x80) finish_segment(segment, compose, out);
    std::array<utf8proc_int32_t, 32> parts;
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    bug_check(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
              "utf8proc: ", count);
    segment.insert(segment.end(), parts.begin(), parts.begin() + count);
  }
  finish_segment(segment, compose, out);
  return out;
}

size_t grapheme_length(std::string_view text) {
  size_t at = 0;
  char32_t before = next_character(text, at);
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const size_t begin = at;
    const char32_t c = next_character(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                         static_cast<utf8proc_int32_t>(c), &state)) {
      return begin;
    }
    before = c;
  }
  return text.size();
}

}  // namespace zinc::text
