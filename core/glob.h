// core/glob.h: names by patterns.
#pragma once

#include <string_view>

namespace zinc {

// True when `text` matches `pattern` (* any run of characters, ? one).
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace zinc
