#include "core/error.h"
#include "train/text/pattern.h"

namespace zinc::train {

std::unique_ptr<Pattern> make_general_pattern(const std::string& regex) {
  throw ConfigError(str("the pattern ", regex,
                        " needs PCRE2, which this build of zinc has not: install libpcre2-dev "
                        "and build again"));
}

}  // namespace zinc::train
