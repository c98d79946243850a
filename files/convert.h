// files/convert.h: reads float values that a file holds in another dtype.
#pragma once

#include <cstdint>
#include <functional>

#include "core/view.h"

namespace zinc::files {

// True where read_converted() can make `out` of `stored`: equal dtypes, or both floats.
bool can_convert(DType stored, DType out);

// Fills `out`, [n] contiguous host memory, with elements that a file holds as `stored`.
// `read_elements(first, raw)` fills `raw`, [m] of `stored`, with elements [first, first + m) of the
// n; it is called for one piece after another, from 0 on, each of at most 1 MiB where the dtypes
// differ.
void read_converted(DType stored, View out,
                    const std::function<void(int64_t first, View raw)>& read_elements);

}  // namespace zinc::files
