#include "core/error.h"
#include "text/unicode/normal_form.h"

namespace zinc::text {

void require_normal_forms(std::string_view what) {
  throw ConfigError(str(what,
                        " needs libutf8proc, which this build of zinc has not: install "
                        "libutf8proc-dev and build again"));
}

std::string normalize(std::string_view, NormalForm) {
  require_normal_forms("a normal form of Unicode");
  return {};
}

size_t grapheme_length(std::string_view) {
  require_normal_forms("cutting text into grapheme clusters");
  return 0;
}

}  // namespace zinc::text
