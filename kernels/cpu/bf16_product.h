// kernels/cpu/bf16_product.h: block products of bf16 of our own: on the tiles of AMX
// (bf16_tiles.h), else with AVX512-BF16's dot product of pairs.
#pragma once

#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Whether block products of this dtype are the bf16 products of this file: bf16, on a CPU that has
// the instruction.
bool is_bf16_product(DType dtype);

// A part of block_product_library(): ", bf16: own AMX", ", bf16: own AVX512-BF16", or nothing.
const char* own_bf16_product();

// Most that is packed along k at once: panels of the right operand for 384 columns then fit into a
// second-level cache of 1 MiB.
inline constexpr int64_t kBf16Part = 768;

// Only where is_bf16_product(shape.dtype). An element is a sum of fixed parts along k, each part a
// chain of dot products of two, or on tiles one chain: its bits depend on k alone, not on the
// block's extents. Subnormal products and sums count as zero, as the instruction has it.
BlockProductPtr make_bf16_product(const BlockShape& shape);
// The product by AVX512-BF16's dot product of pairs, also where there are tiles; for the tests.
BlockProductPtr make_bf16_dot_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
