#include "text/pattern.h"

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr uint16_t kSorted = kLetter | kNumber | kSpace;

// Reads classes of characters out of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(CharacterTable::get()) {}

  size_t size() const { return text_.size(); }
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  // Kinds of the character at `i`, and where the next one begins; 0 at the end of the text.
  uint16_t kinds(size_t i, size_t& next) const {
    next = i;
    if (i >= text_.size()) return 0;
    return table_.kinds(next_character(text_, next));
  }
  uint16_t kinds(size_t i) const {
    size_t next;
    return kinds(i, next);
  }
  // The offset behind the characters from `i` on that have `kind`.
  size_t run(size_t i, uint16_t kind) const {
    size_t next;
    while (i < text_.size() && (kinds(i, next) & kind) != 0) i = next;
    return i;
  }
  // The offset behind the characters from `i` on that are no letter, number or space.
  size_t run_of_others(size_t i) const {
    size_t next;
    while (i < text_.size() && (kinds(i, next) & kSorted) == 0) i = next;
    return i;
  }
  bool is_other(size_t i) const { return i < text_.size() && (kinds(i) & kSorted) == 0; }
  // `\s+(?!\S)|\s+` at a space that begins a run up to `end`.
  size_t spaces(size_t begin, size_t end) const {
    if (end == text_.size()) return end;
    const size_t last = character_before(text_, end);
    return last > begin ? last : end;
  }

 private:
  std::string_view text_;
  const CharacterTable& table_;
};

// The offset behind 's 't 're 've 'm 'll 'd at `i`, which is an apostrophe; `i` where there is
// none.
size_t contraction(const Scanner& text, size_t i, bool any_case) {
  const auto lower = [&](size_t k) {
    const char c = text.at(k);
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (lower(i + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return i + 2;
    case 'r':
    case 'v':
      return lower(i + 2) == 'e' ? i + 3 : i;
    case 'l':
      return lower(i + 2) == 'l' ? i + 3 : i;
    case '\xC5':  // U+017F is an s to whom case means nothing
      return any_case && text.at(i + 2) == '\xBF' ? i + 3 : i;
    default:
      return i;
  }
}

class Gpt2Pattern final : public Pattern {
 public:
  void for_each_match(std::string_view text, Visit visit) const override {
    const Scanner scanner(text);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = match(scanner, begin);
      visit(begin, end);
      begin = end;
    }
  }

 private:
  static size_t match(const Scanner& text, size_t begin) {
    const char first = text.at(begin);
    if (first == '\'') {
      const size_t end = contraction(text, begin, false);
      if (end > begin) return end;
    }
    size_t next;
    const size_t start = first == ' ' ? begin + 1 : begin;
    const uint16_t kinds = start < text.size() ? text.kinds(start, next) : uint16_t{kSpace};
    if ((kinds & kLetter) != 0) return text.run(next, kLetter);
    if ((kinds & kNumber) != 0) return text.run(next, kNumber);
    if ((kinds & kSpace) == 0) return text.run_of_others(next);
    return text.spaces(begin, text.run(begin, kSpace));
  }
};

// Llama 3's, and with numbers of one digit Qwen 2's.
class Llama3Pattern final : public Pattern {
 public:
  explicit Llama3Pattern(int max_digits) : max_digits_(max_digits) {}

  void for_each_match(std::string_view text, Visit visit) const override {
    const Scanner scanner(text);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = match(scanner, begin);
      visit(begin, end);
      begin = end;
    }
  }

 private:
  static bool breaks_line(char c) { return c == '\r' || c == '\n'; }
  static size_t others(const Scanner& text, size_t begin) {
    size_t end = text.run_of_others(begin);
    while (breaks_line(text.at(end))) ++end;
    return end;
  }

  size_t match(const Scanner& text, size_t begin) const {
    const char first = text.at(begin);
    if (first == '\'') {
      const size_t end = contraction(text, begin, true);
      if (end > begin) return end;
    }
    size_t next;
    const uint16_t kinds = text.kinds(begin, next);
    if ((kinds & kLetter) != 0) return text.run(next, kLetter);
    if ((kinds & kNumber) != 0) {
      size_t end = next;
      for (int digits = 1; digits < max_digits_ && (text.kinds(end, next) & kNumber) != 0; ++digits)
        end = next;
      return end;
    }
    if (!breaks_line(first) && (text.kinds(next) & kLetter) != 0) return text.run(next, kLetter);
    if (first == ' ' && text.is_other(next)) return others(text, next);
    if ((kinds & kSpace) == 0) return others(text, begin);
    const size_t end = text.run(begin, kSpace);
    for (size_t i = end; i > begin; --i) {
      if (breaks_line(text.at(i - 1))) return i;
    }
    return text.spaces(begin, end);
  }

  int max_digits_;
};

// Oniguruma reads the inner class as part of the outer one.
class BloomPattern final : public Pattern {
 public:
  void for_each_match(std::string_view text, Visit visit) const override {
    for (size_t at = 0; at < text.size();) {
      size_t next = at;
      const bool space = text[at] == ' ';
      if (!takes(next_character(text, next)) &&
          !(space && next < text.size() && takes_at(text, next))) {
        at = next;
        continue;
      }
      size_t end = next;
      while (end < text.size()) {
        if (!takes(next_character(text, next))) break;
        end = next;
      }
      visit(at, end);
      at = end;
    }
  }

 private:
  static bool takes_at(std::string_view text, size_t at) { return takes(next_character(text, at)); }
  static bool takes(char32_t c) {
    static constexpr std::u32string_view kEnds = U"()|.,!?…。，、।۔،";
    if (c < 0x80 && (c > ' ' && kEnds.find(c) == kEnds.npos)) return true;
    return kEnds.find(c) == kEnds.npos && !CharacterTable::get().is(c, kSpace);
  }
};

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string wanted) : wanted_(std::move(wanted)) {}
  void for_each_match(std::string_view text, Visit visit) const override {
    for (size_t at = text.find(wanted_); at != text.npos;) {
      visit(at, at + wanted_.size());
      at = text.find(wanted_, at + wanted_.size());
    }
  }

 private:
  std::string wanted_;
};

}  // namespace

std::unique_ptr<Pattern> make_pattern(const std::string& regex) {
  if (regex == kGpt2Pattern) return std::make_unique<Gpt2Pattern>();
  if (regex == kLlama3Pattern) return std::make_unique<Llama3Pattern>(3);
  if (regex == kQwen2Pattern) return std::make_unique<Llama3Pattern>(1);
  if (regex == kBloomPattern) return std::make_unique<BloomPattern>();
  return make_general_pattern(regex);
}

std::unique_ptr<Pattern> make_literal_pattern(std::string text) {
  require(!text.empty(), "a literal pattern must not be empty");
  return std::make_unique<LiteralPattern>(std::move(text));
}

}  // namespace zinc::text
