// train/json/utf8.h: what is well-formed UTF-8 (Unicode 15, table 3-7).
#pragma once

#include <cstddef>
#include <string_view>

namespace zinc::train::json {

// Bytes of the well-formed sequence at the front of `text`: 1 to 4; 0 where there is none.
size_t utf8_sequence_length(std::string_view text);

// Offset of the first byte that is not part of a well-formed sequence; npos where all are.
size_t find_invalid_utf8(std::string_view text);

}  // namespace zinc::train::json
