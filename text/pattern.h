// text/pattern.h: the regular expressions by which tokenizers cut text.
//
// The patterns of GPT-2, Llama 3, Qwen 2 and BLOOM have matchers of their own, several times as
// fast as a general one. Every other pattern is matched by PCRE2 (Debian: libpcre2-dev).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "text/function_ref.h"

namespace zinc::text {

class Pattern {
 public:
  using Visit = FunctionRef<void(size_t begin, size_t end)>;

  virtual ~Pattern() = default;
  // Calls visit for each match in order; matches do not overlap. A match may be empty, as for "\b",
  // unless the match before it ends there. `text` is well-formed UTF-8. Throws DataError where a
  // match takes more than the limits of kMaxMatchSteps allow. Several threads may call it at once.
  virtual void for_each_match(std::string_view text, Visit visit) const = 0;
};

// Backtracking steps of one match. A pattern that needs more is refused at the text that shows it.
inline constexpr uint32_t kMaxMatchSteps = 10'000'000;

// `regex`: in Oniguruma's dialect, as in tokenizer.json. Throws DataError where it is no pattern or
// has another meaning in PCRE2 (nested classes, `&&` in a class, \h), and ConfigError where it
// needs PCRE2 and this build has none.
std::unique_ptr<Pattern> make_pattern(const std::string& regex);
// The text itself, which is not empty.
std::unique_ptr<Pattern> make_literal_pattern(std::string text);

// For tests: uses PCRE2 even where there is a matcher of our own.
std::unique_ptr<Pattern> make_general_pattern(const std::string& regex);

// Names of the patterns with a matcher of their own.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kBloomPattern = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

}  // namespace zinc::text
