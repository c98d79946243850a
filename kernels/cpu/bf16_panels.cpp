#include "kernels/cpu/bf16_panels.h"

#ifdef ZINC_BF16_DOT
#include <algorithm>

namespace zinc::kernels::cpu {
namespace {

// Note [Packing in strips]
// Where k runs over stored rows, these lie far apart: each line comes from another page, and no
// hardware prefetcher follows. So kStrip pairs of rows are packed for all panels before the next
// ones, while their lines are asked for. Without that packing took 6 to 10 % of a block of
// 512 x 384 x 512, with it 2 to 5 (Zen 4).
constexpr int64_t kStrip = 16;

alignas(64) constexpr uint16_t kLowPairs[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
alignas(64) constexpr uint16_t kHighPairs[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
                                                 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58,
                                                 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// The first `count` of 32; none where it is negative.
inline __mmask32 first(int64_t count) {
  if (count >= 32) return ~__mmask32{0};
  return count <= 0 ? 0 : (__mmask32{1} << count) - 1;
}

// 32 columns of the stored rows 2 p and 2 p + 1 as pairs; where there is no second row, with zeros.
struct TwoRows {
  __m512i low, high;  // columns 0 to 15, 16 to 31
};
ZINC_BF16_DOT inline TwoRows interleave(const uint16_t* row, int64_t stride, bool is_single,
                                        __mmask32 mask) {
  const __m512i even = _mm512_maskz_loadu_epi16(mask, row);
  const __m512i odd =
      is_single ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, row + stride);
  return {.low = _mm512_permutex2var_epi16(even, _mm512_load_si512(kLowPairs), odd),
          .high = _mm512_permutex2var_epi16(even, _mm512_load_si512(kHighPairs), odd)};
}

// Asks for 32 columns of the two rows that lie a strip further on.
ZINC_BF16_DOT inline void prefetch_next_strip(const uint16_t* row, int64_t stride) {
  const uint16_t* next = row + 2 * kStrip * stride;
  _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(next + stride), _MM_HINT_T0);
}

// A 16 x 16 matrix of pairs, a row in a vector, transposed in place.
ZINC_BF16_DOT inline void transpose(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  // x[4 g + j], quarter q: rows 4 g to 4 g + 3 of column 4 q + j.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_upper = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88);
    const __m512i odd_upper = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xdd);
    const __m512i even_lower = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
    const __m512i odd_lower = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xdd);
    y[j] = _mm512_shuffle_i32x4(even_upper, even_lower, 0x88);
    y[4 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0x88);
    y[8 + j] = _mm512_shuffle_i32x4(even_upper, even_lower, 0xdd);
    y[12 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

// Up to 16 stored rows of up to 32 elements as a 16 x 16 matrix of pairs, transposed: the first
// `columns` of them, column p at to + p * to_step.
ZINC_BF16_DOT inline void transpose(const uint16_t* from, int64_t stride, int64_t rows,
                                    int64_t elements, int64_t columns, int64_t to_step,
                                    Bf16Pair* to) {
  const __mmask32 mask = first(elements);
  __m512i x[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    x[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * stride) : _mm512_setzero_si512();
  }
  transpose(x);
  for (int64_t p = 0; p < columns; ++p) _mm512_storeu_si512(to + p * to_step, x[p]);
}

}  // namespace

ZINC_BF16_DOT void pack_right(const uint16_t* from, int64_t stride, int64_t cols, int64_t k,
                              Bf16Pair* to) {
  const int64_t pairs = pairs_of(k);
  for (int64_t strip = 0; strip < pairs; strip += kStrip) {
    const int64_t end = std::min(pairs, strip + kStrip);
    for (int64_t c = 0; c < cols; c += kPanelCols) {
      const __mmask32 left = first(cols - c);
      const __mmask32 right = first(std::min<int64_t>(cols - c, kPanelCols) - 32);
      for (int64_t p = strip; p < end; ++p) {
        const uint16_t* row = from + 2 * p * stride + c;
        const bool is_single = 2 * p + 1 == k;
        Bf16Pair* panel = to + c * pairs + p * kPanelCols;
        prefetch_next_strip(row, stride);
        prefetch_next_strip(row + 32, stride);
        const TwoRows pair = interleave(row, stride, is_single, left);
        _mm512_storeu_si512(panel, pair.low);
        _mm512_storeu_si512(panel + 16, pair.high);
        _mm512_storeu_si512(panel + 32, interleave(row + 32, stride, is_single, right).low);
      }
    }
  }
}

ZINC_BF16_DOT void pack_right_transposed(const uint16_t* from, int64_t stride, int64_t cols,
                                         int64_t k, Bf16Pair* to) {
  const int64_t pairs = pairs_of(k);
  for (int64_t c = 0; c < cols; c += kPanelCols) {
    for (int64_t part = 0; part < kPanelCols; part += 16) {
      const int64_t rows = cols - c - part;
      for (int64_t p = 0; p < pairs; p += 16) {
        for (int64_t r = 16; r < 32; ++r) {
          _mm_prefetch(reinterpret_cast<const char*>(from + (c + part + r) * stride + 2 * p),
                       _MM_HINT_T1);
        }
        transpose(from + (c + part) * stride + 2 * p, stride, rows, k - 2 * p,
                  std::min<int64_t>(16, pairs - p), kPanelCols,
                  to + c * pairs + p * kPanelCols + part);
      }
    }
  }
}

ZINC_BF16_DOT void pack_left_transposed(const uint16_t* from, int64_t stride, int64_t rows,
                                        int64_t k, Bf16Pair* to) {
  const int64_t pairs = pairs_of(k);
  const int64_t panel_step = pairs * kPanelRows;
  for (int64_t strip = 0; strip < pairs; strip += kStrip) {
    const int64_t end = std::min(pairs, strip + kStrip);
    for (int64_t r = 0; r < rows; r += 32) {
      const __mmask32 mask = first(rows - r);
      for (int64_t p = strip; p < end; ++p) {
        const uint16_t* row = from + 2 * p * stride + r;
        prefetch_next_strip(row, stride);
        const TwoRows pair = interleave(row, stride, 2 * p + 1 == k, mask);
        Bf16Pair* panel = to + r * pairs + p * kPanelRows;
        const __m256i quarters[4] = {
            _mm512_castsi512_si256(pair.low), _mm512_extracti64x4_epi64(pair.low, 1),
            _mm512_castsi512_si256(pair.high), _mm512_extracti64x4_epi64(pair.high, 1)};
        for (int64_t q = 0; q < 4 && r + q * kPanelRows < rows; ++q) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel + q * panel_step), quarters[q]);
        }
      }
    }
  }
}

ZINC_BF16_DOT void pack_right_tiles(const uint16_t* from, int64_t stride, int64_t cols, int64_t k,
                                    Bf16Pair* to) {
  const int64_t pairs = pairs_of(k), tiles = (pairs + 15) / 16;
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t c = 0; c < cols; c += 32) {
      const __mmask32 mask = first(cols - c);
      Bf16Pair* low = to + (c / 16 * tiles + t) * 256;
      Bf16Pair* high = low + tiles * 256;
      for (int64_t p = 16 * t; p < 16 * t + 16; ++p, low += 16, high += 16) {
        const uint16_t* row = from + 2 * p * stride + c;
        prefetch_next_strip(row, stride);
        const TwoRows pair = p < pairs ? interleave(row, stride, 2 * p + 1 == k, mask) : TwoRows{};
        _mm512_storeu_si512(low, pair.low);
        _mm512_storeu_si512(high, pair.high);
      }
    }
  }
}

ZINC_BF16_DOT void pack_right_tiles_transposed(const uint16_t* from, int64_t stride, int64_t cols,
                                               int64_t k, Bf16Pair* to) {
  const int64_t tiles = (pairs_of(k) + 15) / 16;
  for (int64_t c = 0; c < (cols + 31) / 32 * 32; c += 16) {
    for (int64_t t = 0; t < tiles; ++t, to += 256) {
      const uint16_t* tile = from + c * stride + 32 * t;
      for (int64_t r = 16; r < 32; ++r) {
        _mm_prefetch(reinterpret_cast<const char*>(tile + r * stride), _MM_HINT_T1);
      }
      transpose(tile, stride, cols - c, k - 32 * t, 16, 16, to);
    }
  }
}

ZINC_BF16_DOT void pack_left_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t k,
                                  int64_t to_stride, uint16_t* to) {
  for (int64_t r = 0; r < 32; ++r, to += to_stride) {
    for (int64_t q = 0; q < k; q += 32) {
      const __mmask32 mask = r < rows ? first(k - q) : 0;
      _mm512_storeu_si512(to + q, _mm512_maskz_loadu_epi16(mask, from + r * stride + q));
    }
  }
}

ZINC_BF16_DOT void pack_left_rows_transposed(const uint16_t* from, int64_t stride, int64_t rows,
                                             int64_t k, int64_t to_stride, uint16_t* to) {
  const __mmask32 mask = first(rows);
  for (int64_t q = 0; q < k; q += 32) {
    __m512i low[16];
    __m512i high[16];
    for (int p = 0; p < 16; ++p) {
      const int64_t row = q + 2 * p;
      const uint16_t* pair = from + row * stride;
      _mm_prefetch(reinterpret_cast<const char*>(pair + 32 * stride), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(pair + 33 * stride), _MM_HINT_T0);
      const TwoRows two = row < k ? interleave(pair, stride, row + 1 == k, mask) : TwoRows{};
      low[p] = two.low;
      high[p] = two.high;
    }
    transpose(low);
    transpose(high);
    for (int64_t r = 0; r < 16; ++r) {
      _mm512_storeu_si512(to + r * to_stride + q, low[r]);
      _mm512_storeu_si512(to + (16 + r) * to_stride + q, high[r]);
    }
  }
}

}  // namespace zinc::kernels::cpu
#endif
