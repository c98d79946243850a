// kernels/cpu/bf16_product.h: block products of bf16 with AVX512-BF16's dot product of pairs.
#pragma once

#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Whether this CPU, and the compiler, have what make_bf16_product() needs.
bool has_bf16_dot();

// A product of bf16 operands; only where has_bf16_dot(). An element is a sum of fixed parts along
// k, each part a chain of dot products of two: its bits hang on k alone, not on the block's
// extents. Subnormal products and sums count as zero, as the instruction has it.
BlockProductPtr make_bf16_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
