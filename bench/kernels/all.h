// bench/kernels/all.h: the explicit list of kernel benches.
#pragma once

#include "bench/registry.h"

namespace zinc::bench {

// Every entry of every op, in the order of all.cpp, with arrays of this extent.
Registry kernel_benches(Extent extent, const ModelShape& model = {}, const FreeShape& given = {});

}  // namespace zinc::bench
