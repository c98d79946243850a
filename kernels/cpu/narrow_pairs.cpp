// Narrow products of bf16 by AVX512-BF16's dot product of pairs.
//
// The instruction takes 64 bytes of b as they lie and a row of a, and leaves 16 sums: a row costs
// one of them where lanes of f32 widen b first and need two. Nothing is copied.
//
// With b transposed, [n, k], some rows of b run past all rows of a at once, along k. With b as it
// is, [k, n], 16 rows of it are interleaved in pairs, 32 columns at a time, while c waits in the
// cache. Both fetch ahead what comes after the rows that are being read: with several rows of a the
// CPU sees too few bytes at a time to do so itself.
//
// GB/s of b on Zen 5, 2 threads, where reading alone gives 68, lanes of f32 -> pairs: 50257 x 768
// transposed, 1 row 18 -> 71, 8 rows 10 -> 57; 768 x 2304, 1 row 19 -> 43, 8 rows 9 -> 43.
#include "kernels/cpu/narrow_pairs.h"

#include "core/error.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/bf16_product.h"
#include "kernels/cpu/bf16_round.h"
#include "kernels/cpu/narrow_product.h"

#ifdef ZINC_BF16_DOT
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kLanes = 32;          // bf16 in a vector
constexpr int64_t kPartOfDots = 2048;   // along k: eight rows of a stay in a first-level cache
constexpr int64_t kFewElements = 1024;  // a CPU looks no further ahead by itself
constexpr int kPairs = 8;               // pairs of rows of b that are interleaved at once

const uint16_t* row_of(const void* from, int64_t row, int64_t stride) {
  return static_cast<const uint16_t*>(from) + row * stride;
}

ZINC_BF16_DOT inline __m512bh load_first(const uint16_t* from, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, from));
}

// c[r, j] = or += a[r, :k] . b[j, :k] for R rows of a and J of b. Fetches what lies `ahead`
// elements behind in b.
template <int R, int J>
ZINC_BF16_DOT void dot_rows(const uint16_t* a, const uint16_t* b, const BlockShape& shape,
                            int64_t k, int64_t ahead, bool accumulate, float* c) {
  __m512 sums[R][J];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) sums[r][j] = _mm512_setzero_ps();
  }
  for (int64_t q = 0; q < k; q += kLanes) {
    const __mmask32 mask = first_elements(k - q);
    __m512bh right[J];
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      const uint16_t* row = b + j * shape.ldb + q;
      right[j] = load_first(row, mask);
      _mm_prefetch(row + ahead, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512bh left = load_first(a + r * shape.lda + q, mask);
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], left, right[j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      float& to = c[r * shape.ldc + j];
      const float sum = _mm512_reduce_add_ps(sums[r][j]);
      to = accumulate ? to + sum : sum;
    }
  }
}

// A single row takes the rows of b one after the other, as they lie in memory. Several rows take as
// many rows of b at once as registers hold sums, and all rows of b before the next part along k, so
// that this part of a stays in a first-level cache.
template <int R>
ZINC_BF16_DOT void dot_columns(const uint16_t* a, const uint16_t* b, const BlockShape& shape,
                               float* c) {
  constexpr int J = R == 1 ? 1 : R > 5 ? 3 : 4;
  const int64_t rows_ahead = std::max<int64_t>(J, kFewElements / shape.k);
  const auto dot = [&]<int kColumns>(std::integral_constant<int, kColumns>, int64_t j, int64_t q) {
    dot_rows<R, kColumns>(a + q, row_of(b, j, shape.ldb) + q, shape,
                          std::min(kPartOfDots, shape.k - q), rows_ahead * shape.ldb,
                          shape.accumulate || q > 0, c + j);
  };
  const int64_t run = R == 1 ? 1 : shape.n;
  for (int64_t begin = 0; begin < shape.n; begin += run) {
    for (int64_t q = 0; q < shape.k; q += kPartOfDots) {
      int64_t j = begin;
      for (; j + J <= begin + run; j += J) dot(std::integral_constant<int, J>(), j, q);
      for (; j < begin + run; ++j) dot(std::integral_constant<int, 1>(), j, q);
    }
  }
}

// c[:, :32] = or += a[:, :2 P] b[:2 P, :32], of which there are `rows` <= 2 P rows (where P is 1)
// and `cols` <= 32 columns.
template <int P>
ZINC_BF16_DOT void add_pairs(const uint16_t* a, const uint16_t* b, const BlockShape& shape,
                             int64_t rows, int64_t cols, bool accumulate, float* c) {
  alignas(64) static constexpr uint16_t kOrder[2][kLanes] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i low = _mm512_load_si512(kOrder[0]), high = _mm512_load_si512(kOrder[1]);
  const __mmask32 mask = first_elements(cols);
  __m512bh right[P][2];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    const uint16_t* row = b + 2 * p * shape.ldb;
    const bool is_half = P == 1 && rows < 2;
    const __m512i even = _mm512_maskz_loadu_epi16(mask, row);
    const __m512i odd = _mm512_maskz_loadu_epi16(is_half ? 0 : mask, row + shape.ldb);
    _mm_prefetch(row + 2 * P * shape.ldb, _MM_HINT_T0);
    _mm_prefetch(row + (2 * P + 1) * shape.ldb, _MM_HINT_T0);
    right[p][0] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(even, low, odd));
    right[p][1] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(even, high, odd));
  }
  const __mmask16 first = first_lanes(cols), second = first_lanes(cols - 16);
  for (int64_t r = 0; r < shape.m; ++r) {
    float* to = c + r * shape.ldc;
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (accumulate) {
      sums[0] = _mm512_maskz_loadu_ps(first, to);
      sums[1] = _mm512_maskz_loadu_ps(second, to + 16);
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      int32_t pair = 0;
      std::memcpy(&pair, a + r * shape.lda + 2 * p, P == 1 && rows < 2 ? 2 : 4);
      const auto left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      sums[0] = _mm512_dpbf16_ps(sums[0], left, right[p][0]);
      sums[1] = _mm512_dpbf16_ps(sums[1], left, right[p][1]);
    }
    _mm512_mask_storeu_ps(to, first, sums[0]);
    _mm512_mask_storeu_ps(to + 16, second, sums[1]);
  }
}

template <int P>
ZINC_BF16_DOT void add_rows(const uint16_t* a, const uint16_t* b, const BlockShape& shape,
                            int64_t q, float* c) {
  for (int64_t j = 0; j < shape.n; j += kLanes) {
    add_pairs<P>(a + q, row_of(b, q, shape.ldb) + j, shape, shape.k - q, shape.n - j,
                 shape.accumulate || q > 0, c + j);
  }
}

ZINC_BF16_DOT void add_columns(const uint16_t* a, const uint16_t* b, const BlockShape& shape,
                               float* c) {
  int64_t q = 0;
  for (; q + 2 * kPairs <= shape.k; q += 2 * kPairs) add_rows<kPairs>(a, b, shape, q, c);
  for (; q < shape.k; q += 2) add_rows<1>(a, b, shape, q, c);
}

class PairsProduct final : public BlockProduct {
 public:
  explicit PairsProduct(const BlockShape& shape) : shape_(shape) {}

  int64_t scratch_bytes() const override { return 0; }

  void run(const void* a, const void* b, float* c, std::byte*, bool) const override {
    const auto* left = static_cast<const uint16_t*>(a);
    const auto* right = static_cast<const uint16_t*>(b);
    if (!shape_.transpose_b) return add_columns(left, right, shape_, c);
    constexpr std::array kDots{dot_columns<1>, dot_columns<2>, dot_columns<3>, dot_columns<4>,
                               dot_columns<5>, dot_columns<6>, dot_columns<7>, dot_columns<8>};
    static_assert(kDots.size() == kMostNarrowRows);
    kDots[static_cast<size_t>(shape_.m - 1)](left, right, shape_, c);
  }

 private:
  BlockShape shape_;
};

}  // namespace

bool fits_pairs(const BlockShape& shape) { return is_bf16_product(shape.dtype); }

BlockProductPtr make_pairs_product(const BlockShape& shape) {
  bug_check(fits_pairs(shape), "product of pairs: of ", shape.dtype);
  return std::make_shared<const PairsProduct>(shape);
}

}  // namespace zinc::kernels::cpu

#else

namespace zinc::kernels::cpu {

bool fits_pairs(const BlockShape&) { return false; }
BlockProductPtr make_pairs_product(const BlockShape&) {
  bug_check(false, "product of pairs: this CPU has none");
  return nullptr;
}

}  // namespace zinc::kernels::cpu
#endif
