// kernels/cpu/narrow_tiles.h: narrow products of bf16 on the tiles of AMX.
#pragma once

#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Whether this CPU has tiles of bf16, the kernel lets this process use them, and `shape`, a narrow
// one, is large enough to fill some.
bool fits_tiles(const BlockShape& shape);

// Only where fits_tiles(). Sums are in f32, in steps of 32 along k: how n is cut changes no bit.
BlockProductPtr make_tiled_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
