// text/unicode/normal_form.h: the normal forms of Unicode (UAX #15) and grapheme clusters
// (UAX #29), by libutf8proc.
//
// Without that library (Debian: libutf8proc-dev) these functions throw ConfigError, which names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc::text {

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

// `text` is well-formed UTF-8. Normalises as Hugging Face's tokenizers do, with the tables of
// Unicode 9.0: a newer character stays as it is, and nothing is reordered or composed across it.
std::string normalize(std::string_view text, NormalForm form);

// Bytes of the extended grapheme cluster at the front of `text`, which is not empty.
size_t grapheme_length(std::string_view text);

// Throws ConfigError where this build has no libutf8proc; `what` needs it.
void require_normal_forms(std::string_view what);

}  // namespace zinc::text
