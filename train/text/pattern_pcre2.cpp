#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "train/text/pattern.h"

namespace zinc::train {
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
  throw DataError(concat("the pattern ", regex, " at byte ", at, ": ", why));
}

// Where Oniguruma and PCRE2 differ: `\s` of PCRE2 has U+180E, too; what else differs is refused.
std::string translated(const std::string& regex) {
  static constexpr std::string_view kSpaces =
      R"(\t-\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
  std::string out;
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const char next = i + 1 < regex.size() ? regex[i + 1] : '\0';
    if (c == '\\' && next == 's') {
      out += in_class ? std::string(kSpaces) : concat('[', kSpaces, ']');
      ++i;
    } else if (c == '\\' && next == 'S' && !in_class) {
      out += concat("[^", kSpaces, ']');
      ++i;
    } else if (c == '\\' && (next == 'h' || next == 'H' || (next == 'S' && in_class))) {
      refuse(regex, i, concat('\\', next, " is not supported there"));
    } else if (c == '\\' && next != '\0') {
      out += c;
      out += next;
      ++i;
    } else if (!in_class && c == '[') {
      in_class = true;
      class_begin = next == '^' ? i + 2 : i + 1;
      out += c;
    } else if (in_class && c == '[' && next == ':') {
      out += c;
    } else if (in_class && c == '[') {
      refuse(regex, i, "a class inside a class is not supported");
    } else if (in_class && c == '&' && next == '&') {
      refuse(regex, i, "an intersection of classes is not supported");
    } else {
      const bool closes_posix = in_class && c == ']' && i > 0 && regex[i - 1] == ':' &&
                                regex.rfind("[:", i) != regex.npos &&
                                regex.rfind("[:", i) >= class_begin;
      if (in_class && c == ']' && i > class_begin && !closes_posix) in_class = false;
      out += c;
    }
  }
  return out;
}

class Pcre2Pattern final : public Pattern {
 public:
  explicit Pcre2Pattern(const std::string& regex) : regex_(regex) {
    if (regex.size() > kMaxPatternBytes) {
      throw DataError(
          concat("a pattern of ", regex.size(), " bytes is longer than ", kMaxPatternBytes));
    }
    const std::string pattern = translated(regex);
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_parens_nest_limit(context.get(), 64);
    int error = 0;
    PCRE2_SIZE place = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                              context.get()));
    if (code_ == nullptr) refuse(regex, place, message_of(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where it fails, matching is interpreted
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMaxMatchSteps);
    pcre2_set_heap_limit(limits_.get(), kMaxMatchKibibytes);
  }

  void for_each_match(std::string_view text, Visit visit) const override {
    const MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    for (size_t at = 0; at < text.size();) {
      const auto match = [&](uint32_t options) {
        return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                           PCRE2_NO_UTF_CHECK | options, data.get(), limits_.get());
      };
      int count = match(0);
      // Compiled code has a small stack; the interpreter takes what the heap limit allows.
      if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
      if (count == PCRE2_ERROR_NOMATCH) return;
      if (count < 0) {
        throw DataError(concat("the pattern ", regex_, " gives up on the text behind byte ", at,
                               ": ", message_of(count)));
      }
      const size_t begin = range[0], end = range[1];
      if (end > begin) visit(begin, end);
      // An empty match: go on behind the next character. \K may put the begin behind the end.
      at = end > at ? end : at + 1;
      while (end <= begin && at < text.size() &&
             (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
        ++at;
      }
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

}  // namespace zinc::train
