#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "text/pattern.h"
#include "text/unicode/unicode_ranges.h"

namespace zinc::text {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr uint32_t kMaxMatchKibibytes = 256 * 1024;

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* p) const {
    destroy(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Destroy<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Destroy<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Destroy<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Destroy<pcre2_match_data_free>>;

std::string message_of(int code) {
  std::string text(256, '\0');
  const int length =
      pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

[[noreturn]] void refuse(const std::string& regex, size_t at, const std::string& why) {
  throw DataError(str("the pattern ", regex, " at byte ", at, ": ", why));
}

// Characters of a general category ("Lo", "L"), as part of a class: those that PCRE2's tables may
// be too old for beside its own. Other names are PCRE2's: scripts.
std::string category(std::string_view name) {
  std::string parts = str("\\p{", name, '}');
  for (const CategoryRange& range : unicode_ranges().younger_categories) {
    if (name.empty() || !range.category.starts_with(name)) continue;
    parts += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first),
                         static_cast<uint32_t>(range.last));
  }
  return parts;
}

// The members of \d, \s and \w in Oniguruma, as part of a class.
std::string members_of(char kind) {
  if (kind == 'd') return category("Nd");
  if (kind == 's') {
    return R"(\t-\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
  }
  std::string parts = category("L") + category("M") + category("Nd") + category("Pc");
  for (const CharacterRange& range : unicode_ranges().more_words) {
    parts += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first),
                         static_cast<uint32_t>(range.last));
  }
  return parts;
}

// Translates a pattern from Oniguruma's dialect to a PCRE2 pattern of the same meaning: \d, \s, \w,
// \b, categories and POSIX classes have the members of Oniguruma's tables, ^ and $ are ends of
// lines. A pattern without such a form is refused.
class Translator {
 public:
  explicit Translator(const std::string& regex) : regex_(regex) {}

  std::string run() {
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        member(c);
      } else {
        outside(c);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return std::string_view(regex_).substr(at_); }
  void put(std::string_view text, size_t length) {
    out_ += text;
    at_ += length;
  }
  void copy(size_t length) { put(rest().substr(0, length), length); }

  void escape() {
    const char kind = at_ + 1 < regex_.size() ? regex_[at_ + 1] : '\0';
    const auto lower = static_cast<char>(kind | 0x20);
    if (lower == 'd' || lower == 's' || lower == 'w') {
      put_class(members_of(lower), kind != lower, 2);
    } else if (lower == 'p' && rest().substr(2).starts_with('{') &&
               rest().find('}') != rest().npos) {
      const size_t end = rest().find('}');
      put_class(category(rest().substr(3, end - 3)), kind == 'P', end + 1);
    } else if (lower == 'b' && !in_class_) {
      const std::string word = str('[', members_of('w'), ']');
      put(kind == 'b' ? str("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))")
                      : str("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))"),
          2);
    } else if (lower == 'h') {
      refuse(regex_, at_, str('\\', kind, " is not supported there"));
    } else {
      copy(2);
    }
  }

  // Inside a class, what `members` are not cannot be said.
  void put_class(const std::string& members, bool negated, size_t length) {
    if (in_class_ && negated) {
      refuse(regex_, at_, str(rest().substr(0, length), " is not supported there"));
    }
    put(in_class_ ? members : str(negated ? "[^" : "[", members, ']'), length);
  }

  void member(char c) {
    if (c == '[' && rest().starts_with("[:") && rest().find(":]") != rest().npos) return posix();
    if (c == '[') refuse(regex_, at_, "a class inside a class is not supported");
    if (rest().starts_with("&&")) {
      refuse(regex_, at_, "an intersection of classes is not supported");
    }
    if (c == ']' && at_ > class_begin_) in_class_ = false;
    copy(1);
  }

  void posix() {
    const size_t length = rest().find(":]") + 2;
    const std::string_view name = rest().substr(2, length - 4);
    if (name == "punct") return put(category("P") + category("S"), length);
    if (name == "digit") return put(members_of('d'), length);
    if (name == "space") return put(members_of('s'), length);
    if (name == "alpha") return put(R"(\p{Alphabetic})", length);
    if (name == "alnum") return put(R"(\p{Alphabetic})" + members_of('d'), length);
    if (name == "upper") return put(R"(\p{Uppercase})", length);
    if (name == "lower") return put(R"(\p{Lowercase})", length);
    if (name == "word") return put(members_of('w'), length);
    if (name == "cntrl") return put(category("Cc"), length);
    if (name == "blank") return put(R"(\t)" + category("Zs"), length);
    if (name == "xdigit") return put("0-9A-Fa-f", length);
    refuse(regex_, at_, str(rest().substr(0, length), " is not supported"));
  }

  void outside(char c) {
    if (c == '[') {
      in_class_ = true;
      class_begin_ = at_ + (rest().starts_with("[^") ? 2 : 1);
    } else if (c == '^' || c == '$') {
      return put(str("(?m:", c, ')'), 1);
    } else if (c == '{') {
      require_plain_interval();
    } else if (rest().starts_with("(?")) {
      require_known_flags();
    }
    copy(1);
  }

  // {2}+ repeats an interval in Oniguruma, and {,2} is one.
  void require_plain_interval() const {
    const size_t end = rest().find_first_not_of("0123456789,", 1);
    if (end == rest().npos || end == 1 || rest()[end] != '}') return;
    if (rest()[1] == ',' || rest().substr(end + 1).starts_with('+')) {
      refuse(regex_, at_, str(rest().substr(0, end + 2), " is not supported"));
    }
  }

  // (?m) has another meaning.
  void require_known_flags() const {
    const size_t end =
        rest().find_first_not_of("-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", 2);
    if (end == rest().npos || end == 2 || (rest()[end] != ':' && rest()[end] != ')')) return;
    const size_t unknown = rest().substr(2, end - 2).find_first_not_of("ix-");
    if (unknown == rest().npos) return;
    refuse(regex_, at_, str("(?", rest()[2 + unknown], ") is not supported"));
  }

  const std::string& regex_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_begin_ = 0;  // behind [ or [^, where ] is a member
  std::string out_;
};

class Pcre2Pattern final : public Pattern {
 public:
  explicit Pcre2Pattern(const std::string& regex) : regex_(regex) {
    if (regex.size() > kMaxPatternBytes) {
      throw DataError(
          str("a pattern of ", regex.size(), " bytes is longer than ", kMaxPatternBytes));
    }
    const std::string pattern = Translator(regex).run();
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_parens_nest_limit(context.get(), 64);
    int error = 0;
    PCRE2_SIZE place = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                              context.get()));
    if (code_ == nullptr) refuse(regex, place, message_of(error));
    // Without the compiled code, matching is interpreted.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMaxMatchSteps);
    pcre2_set_heap_limit(limits_.get(), kMaxMatchKibibytes);
  }

  void for_each_match(std::string_view text, Visit visit) const override {
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    std::optional<size_t> last_end;
    for (size_t at = 0; at <= text.size();) {
      const auto match = [&](uint32_t options) {
        return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                           PCRE2_NO_UTF_CHECK | options, data.get(), limits_.get());
      };
      int count = match(0);
      // Compiled code has a small stack; the interpreter may take memory up to the heap limit.
      if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
      if (count == PCRE2_ERROR_NOMATCH) return;
      if (count < 0) {
        throw DataError(str("the pattern ", regex_, " gives up on the text behind byte ", at, ": ",
                            message_of(count)));
      }
      const size_t begin = range[0], end = range[1];
      // An empty match where the last one ended is none. \K may put the begin behind the end.
      if (begin > end || (begin == end && last_end == end)) {
        ++at;
        while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
        continue;
      }
      visit(begin, end);
      at = end;
      last_end = end;
    }
  }

 private:
  std::string regex_;
  Code code_;
  MatchContext limits_;
};

}  // namespace

std::unique_ptr<Pattern> make_general_pattern(const std::string& regex) {
  return std::make_unique<Pcre2Pattern>(regex);
}

}  // namespace zinc::text
