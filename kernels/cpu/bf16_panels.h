// kernels/cpu/bf16_panels.h: operands of a bf16 product in the order in which it reads them.
//
// AVX512-BF16 multiplies pairs along k. A panel of w columns (rows of the left operand) holds
// element (p, c) as one 32-bit pair at p * w + c: k = 2 p in the low half, k = 2 p + 1 in the high
// half. Past the edge of the operand there are zeros. Panels follow each other, pairs * w apart.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
// GCC 12 takes the don't-care operands inside these functions for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define ZINC_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace zinc::kernels::cpu {

using Bf16Pair = uint32_t;

inline constexpr int64_t kPanelRows = 8;   // of the left operand
inline constexpr int64_t kPanelCols = 48;  // of the right operand

inline int64_t pairs_of(int64_t k) { return (k + 1) / 2; }
// Pairs in panels of `width` that hold `extent` rows or columns.
inline int64_t panel_pairs(int64_t extent, int64_t width, int64_t k) {
  return (extent + width - 1) / width * width * pairs_of(k);
}

// Panels of kPanelCols from [k, cols], and from its transpose [cols, k]; stored rows lie `stride`
// elements apart.
ZINC_BF16_DOT void pack_right(const uint16_t* from, int64_t stride, int64_t cols, int64_t k,
                              Bf16Pair* to);
ZINC_BF16_DOT void pack_right_transposed(const uint16_t* from, int64_t stride, int64_t cols,
                                         int64_t k, Bf16Pair* to);
// Panels of kPanelRows from the transpose [k, rows] of a left operand. (Untransposed, its pairs are
// where the product can read them.)
ZINC_BF16_DOT void pack_left_transposed(const uint16_t* from, int64_t stride, int64_t rows,
                                        int64_t k, Bf16Pair* to);

// The same for tiles (kernels/cpu/tiles.h). A tile has 16 x 16 pairs in a row. The right operand
// becomes the tiles of 16 columns along k, then the tiles of the next 16 columns, up to a multiple
// of 32 columns. The left operand becomes 32 rows of whole tiles along k, rows to_stride elements
// apart. Elements past the edges are zero.
ZINC_BF16_DOT void pack_right_tiles(const uint16_t* from, int64_t stride, int64_t cols, int64_t k,
                                    Bf16Pair* to);
ZINC_BF16_DOT void pack_right_tiles_transposed(const uint16_t* from, int64_t stride, int64_t cols,
                                               int64_t k, Bf16Pair* to);
ZINC_BF16_DOT void pack_left_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t k,
                                  int64_t to_stride, uint16_t* to);
ZINC_BF16_DOT void pack_left_rows_transposed(const uint16_t* from, int64_t stride, int64_t rows,
                                             int64_t k, int64_t to_stride, uint16_t* to);

}  // namespace zinc::kernels::cpu
#endif
