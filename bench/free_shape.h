// bench/free_shape.h: shapes of the kernel bench that a person names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::bench {

// Extents by the names that an entry's shape has: "rows", "cols", "n", "M", "T" and so on.
using FreeShape = std::map<std::string, int64_t>;

// `shape`: "rows=8192,cols=4096", or "". Each sweep: "cols=1024:16384:x2" (both ends, each twice
// the one before) or "T=512:2048:+512". All combinations, the last sweep fastest; one empty shape
// where nothing is given. Throws ConfigError for text that cannot be read, for a name given twice
// and for more than 256 shapes.
std::vector<FreeShape> free_shapes(std::string_view shape, const std::vector<std::string>& sweeps);

// Whether the text of an entry's shape, as in "rows=8192,cols=4096", has all these extents.
bool has_extents(std::string_view text, const FreeShape& shape);

}  // namespace zinc::bench
