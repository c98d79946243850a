// kernels/cpu/element_blocks.h: element-wise functions over views of short dtypes.
//
// A function works on arrays of f32: on blocks of the first-level cache, which are widened and
// rounded by one loop for each dtype, so that a function is compiled once for a SIMD target; on
// arrays of f32 where they lie. Functions of two arguments, whose arithmetic is a few instructions,
// are compiled for 16-bit arrays too: two more passes over the cache would take a fifth of their
// time.
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
  std::array<const void*, kBlockInputs> in{};  // the inputs of the function
  std::array<bool, kBlockInputs> repeats{};    // the input is one value for all elements
  std::array<float, kBlockInputs> value{};     // the value of an input that repeats
  void* out = nullptr;                         // may be an input
  int64_t count = 0;                           // a multiple of the lanes of two vectors
  bool past_caches = false;                    // how `out` is stored
  float p = 0.0f, q = 0.0f;                    // constants of unary functions
};
using BlockFunction = void (*)(const ElementBlock&);
// Functions by the dtype of inputs and output (a mask is u8). Null: the arrays are converted to
// f32.
struct BlockFunctions {
  BlockFunction f32 = nullptr, bf16 = nullptr, f16 = nullptr;
};

BlockFunctions value_block(UnaryOp op);                      // x
BlockFunctions gradient_block(UnaryOp op);                   // x, dy
BlockFunctions value_block(BinaryOp op);                     // a, b
BlockFunctions gradient_of_a_block(BinaryOp op);             // a, b, dy
BlockFunctions gradient_of_b_block(BinaryOp op, bool adds);  // a, b, dy, and what it adds to
BlockFunctions mask_block(CompareOp op);                     // a, b; 1 or 0

// out[i] = function(in[0][i], ...), in parallel. Inputs stretch to the shape of `out`
// (kernels/broadcast.h). Dtypes: f32, bf16, f16, u8.
void map_blocks(const BlockFunctions& functions, const View& out,
                std::initializer_list<ConstView> in, double p = 0.0, double q = 0.0);

}  // namespace zinc::kernels::cpu
