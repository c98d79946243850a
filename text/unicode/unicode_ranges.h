// text/unicode/unicode_ranges.h: the tables behind text/unicode/unicode.h, as lists of
// ranges.
//
// Asked from Hugging Face's tokenizers 0.23.3 by tests/reference/make_unicode_ranges.py: the parts
// of that library hold tables of different versions of Unicode, and ids are equal only where each
// table is.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace zinc::text {

struct CharacterRange {
  char32_t first, last;  // both belong to it
};

// first, first + step, ..., last become lower case when `delta` is added.
struct LowerRun {
  char32_t first, last;
  int32_t step, delta;
};

// Characters of one general category: "Lo".
struct CategoryRange {
  char32_t first, last;
  std::string_view category;
};

struct UnicodeRanges {
  std::span<const CharacterRange> letters;   // \p{L} of a pattern
  std::span<const CharacterRange> numbers;   // \p{N} of a pattern
  std::span<const CharacterRange> spaces;    // \s of a pattern: White_Space
  std::span<const CharacterRange> words;     // \w
  std::span<const CharacterRange> numerics;  // characters that the pre-tokenizer Digits cuts out
  // Characters that the pre-tokenizer Punctuation cuts out.
  std::span<const CharacterRange> punctuation;
  std::span<const CharacterRange> cleaned;  // characters that BertNormalizer's clean_text removes
  // Characters that BertNormalizer's strip_accents removes.
  std::span<const CharacterRange> bert_accents;
  std::span<const CharacterRange> accents;  // characters that the normalizer StripAccents removes
  std::span<const CharacterRange> younger;  // no character yet in Unicode 9.0
  std::span<const CharacterRange> more_words;  // \w of a pattern beside L, M, Nd and Pc
  std::span<const LowerRun> lower;             // U+0130, which becomes two, is not in it
  // For patterns: characters that Unicode 14.0 lacks.
  std::span<const CategoryRange> younger_categories;
};

UnicodeRanges unicode_ranges();

}  // namespace zinc::text
