// kernels/cpu/bf16_tiles.h: block products of bf16 on the tiles of AMX.
#pragma once

#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Whether this CPU has tiles of bf16, and this process may use them.
bool has_bf16_tiles();

// Only where has_bf16_tiles(); bf16. An element is one chain of sums along k, in steps of 32: its
// bits depend on k alone. Subnormal operands, products and sums count as zero, as the instruction
// has it.
BlockProductPtr make_bf16_tile_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
