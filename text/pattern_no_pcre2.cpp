#include "core/error.h"
#include "text/pattern.h"

namespace zinc::text {

std::unique_ptr<Pattern> make_general_pattern(const std::string& regex) {
  throw ConfigError(str("the pattern ", regex,
                        " needs PCRE2, which this build of zinc has not: install libpcre2-dev "
                        "and build again"));
}

}  // namespace zinc::text
