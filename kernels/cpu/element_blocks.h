// kernels/cpu/element_blocks.h: element-wise functions over views of any float dtype, a block of
// f32 that fits into the first-level cache at a time.
//
// A block function works on f32 alone, so that each function is compiled once for a SIMD target;
// blocks are widened and rounded by one loop for each dtype. A pass over the first-level cache
// costs a tenth of what the memory takes for the same elements.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "core/view.h"
#include "kernels/binary.h"
#include "kernels/compare.h"
#include "kernels/unary.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kElementBlock = 512;
inline constexpr size_t kBlockInputs = 4;

struct ElementBlock {
  std::array<const float*, kBlockInputs> in{};  // of the inputs that the function has
  float* out = nullptr;                         // may be an input
  int64_t count = 0;                            // a multiple of the lanes of a vector
  float p = 0.0f, q = 0.0f;                     // constants of unary functions
};
using BlockFunction = void (*)(const ElementBlock&);

BlockFunction value_block(UnaryOp op);                      // x
BlockFunction gradient_block(UnaryOp op);                   // x, dy
BlockFunction value_block(BinaryOp op);                     // a, b
BlockFunction gradient_of_a_block(BinaryOp op);             // a, b, dy
BlockFunction gradient_of_b_block(BinaryOp op, bool adds);  // a, b, dy, and what it adds to
BlockFunction mask_block(CompareOp op);                     // a, b; 1 or 0

// out[i] = function(in[0][i], ...), in parallel. Inputs stretch to the shape of `out`
// (kernels/broadcast.h). Dtypes: f32, bf16, f16, u8.
void map_blocks(BlockFunction function, const View& out, std::initializer_list<ConstView> in,
                double p = 0.0, double q = 0.0);

}  // namespace zinc::kernels::cpu
