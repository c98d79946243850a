// kernels/cpu/narrow_pairs.h: narrow products of bf16 by AVX512-BF16's dot product of pairs.
#pragma once

#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Whether this CPU has the instruction, and the operands are bf16.
bool fits_pairs(const BlockShape& shape);

// Only where fits_pairs(). With b transposed a sum is of lanes along k, and of parts of 2048 of it;
// else it goes along k in pairs. How n is cut changes no bit.
BlockProductPtr make_pairs_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
