// Block products of bf16 on AVX512-BF16.
//
// The right operand of a part along k is packed once for the block, into panels of 48 columns, and
// so is a transposed left one, into panels of 8 rows; an untransposed one is read where it lies.
// A tile of 8 x 48 sums stays in 24 registers while its two panels run past it, and where bias and
// rounding are all that is left to do, they are done there.
#include "kernels/cpu/bf16_product.h"

#include "core/error.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/bf16_parts.h"
#include "kernels/cpu/bf16_round.h"
#include "kernels/cpu/bf16_tiles.h"

#ifdef ZINC_BF16_DOT
#include <algorithm>
#include <cstring>

namespace zinc::kernels::cpu {
namespace {

// Sums of one tile: c[rows, cols] of up to kPanelRows x kPanelCols.
struct TileOfSums {
  const char* left;   // the first pair of its first row
  int64_t row_step;   // bytes from a row's pair to the next row's
  int64_t pair_step;  // bytes from a row's pair to its next one
  const Bf16Pair* right;
  int64_t pairs;  // whole ones
  bool has_half;  // then one more, of which only the low half may be read
  float* c;
  int64_t ldc;
  int64_t rows, cols;
  bool accumulate;
  // Null: the sums stay in c. Else they leave rounded, and c is only read, where it accumulates.
  uint16_t* rounded;
  int64_t ld_rounded;
  const void* bias;  // bias of the first column; null: none
  DType bias_dtype;
};

// Computes a tile of kPanelRows rows and `Vectors` x 16 columns. kPacked: row_step and pair_step
// are those of a panel.
template <int Vectors, bool kPacked>
ZINC_BF16_DOT void sum_tile(const TileOfSums& t) {
  constexpr int kRows = static_cast<int>(kPanelRows);
  __m512 sums[kRows][Vectors];
  const char* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    // Rows that are not there repeat the last one; nothing of them is stored.
    row[r] = t.left + std::min<int64_t>(r, t.rows - 1) * t.row_step;
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      const void* to = t.rounded != nullptr
                           ? static_cast<const void*>(t.rounded + r * t.ld_rounded + 16 * v)
                           : t.c + r * t.ldc + 16 * v;
      _mm_prefetch(to, _MM_HINT_T0);
    }
  }
  const Bf16Pair* right = t.right;
  __m512bh columns[Vectors];
  for (int64_t p = 0; p < t.pairs; ++p, right += kPanelCols) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) {
      columns[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + 16 * v));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, kPacked ? t.left + p * kPanelRows * 4 + r * 4 : row[r] + p * 4, 4);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], both, columns[v]);
      }
    }
  }
  if (t.has_half) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) {
      columns[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + 16 * v));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      uint16_t half;
      std::memcpy(&half, row[r] + t.pairs * 4, 2);
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(half));
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], both, columns[v]);
      }
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < Vectors; ++v) {
    const __mmask16 mask = first_lanes(t.cols - 16 * v);
    const __m512 bias =
        t.bias != nullptr ? load_bias(t.bias, t.bias_dtype, 16 * v, mask) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (r >= t.rows) continue;
      float* to = t.c + r * t.ldc + 16 * v;
      __m512 sum = sums[r][v];
      if (t.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
      if (t.rounded == nullptr) {
        _mm512_mask_storeu_ps(to, mask, sum);
      } else {
        if (t.bias != nullptr) sum = _mm512_add_ps(sum, bias);
        _mm256_mask_storeu_epi16(t.rounded + r * t.ld_rounded + 16 * v, mask, round_to_bf16(sum));
      }
    }
  }
}

template <bool kPacked>
void sum_tile(const TileOfSums& t) {
  if (t.cols > 32) {
    sum_tile<3, kPacked>(t);
  } else if (t.cols > 16) {
    sum_tile<2, kPacked>(t);
  } else {
    sum_tile<1, kPacked>(t);
  }
}

class Bf16Product final : public BlockProduct {
 public:
  explicit Bf16Product(const BlockShape& shape)
      : shape_(shape), part_(std::min(part_of(shape.k), 2 * pairs_of(shape.k))) {}

  int64_t scratch_bytes() const override { return right_bytes() + left_bytes(); }

  void run(const void* a, const void* b, float* c, std::byte* scratch, bool same_b) const override {
    run_parts(a, b, c, scratch, same_b, {}, nullptr);
  }
  void run_causal(const void* a, const void* b, float* c, std::byte* scratch,
                  const CausalCut& cut) const override {
    run_parts(a, b, c, scratch, false, cut, nullptr);
  }
  void run_rounded(const void* a, const void* b, float* sums, std::byte* scratch, bool same_b,
                   const RoundedOutput& to) const override {
    bug_check(!shape_.accumulate, "bf16 block product: a rounded one does not accumulate");
    run_parts(a, b, sums, scratch, same_b, {}, &to);
  }

 private:
  void run_parts(const void* a, const void* b, float* c, std::byte* scratch, bool same_b,
                 const CausalCut& cut, const RoundedOutput* to) const {
    const auto* left = static_cast<const uint16_t*>(a);
    const auto* right = static_cast<const uint16_t*>(b);
    auto* right_panels = reinterpret_cast<Bf16Pair*>(scratch);
    auto* left_panels = reinterpret_cast<Bf16Pair*>(scratch + right_bytes());
    for (int64_t k = 0; k < shape_.k; k += part_) {
      const int64_t depth = std::min(part_, shape_.k - k);
      if (same_b && part_ >= shape_.k) {
        // The panels of the whole b are still there.
      } else if (shape_.transpose_b) {
        pack_right_transposed(right + k, shape_.ldb, shape_.n, depth, right_panels);
      } else {
        pack_right(right + k * shape_.ldb, shape_.ldb, shape_.n, depth, right_panels);
      }
      if (shape_.transpose_a) {
        pack_left_transposed(left + k * shape_.lda, shape_.lda, shape_.m, depth, left_panels);
      }
      sum_part(left + k, k, depth, left_panels, right_panels, k > 0 || shape_.accumulate, c, cut,
               k + part_ >= shape_.k ? to : nullptr);
    }
  }

  static int64_t whole_lines(int64_t pairs) { return (pairs * 4 + 63) / 64 * 64; }
  int64_t right_bytes() const { return whole_lines(panel_pairs(shape_.n, kPanelCols, part_)); }
  int64_t left_bytes() const {
    return shape_.transpose_a ? whole_lines(panel_pairs(shape_.m, kPanelRows, part_)) : 0;
  }

  // `left`: the part of an untransposed left operand, which begins at k.
  void sum_part(const uint16_t* left, int64_t k, int64_t depth, const Bf16Pair* left_panels,
                const Bf16Pair* right_panels, bool accumulate, float* c, const CausalCut& cut,
                const RoundedOutput* to) const {
    const int64_t pairs = pairs_of(depth);
    for (int64_t i = 0; i < shape_.m; i += kPanelRows) {
      const SeenPart seen = seen_by(cut, shape_, i, kPanelRows, k, depth);
      for (int64_t j = 0; j < seen.cols; j += kPanelCols) {
        TileOfSums tile{.right = right_panels + j * pairs,
                        .c = c + i * shape_.ldc + j,
                        .ldc = shape_.ldc,
                        .rows = std::min(kPanelRows, shape_.m - i),
                        .cols = std::min(kPanelCols, seen.cols - j),
                        .accumulate = accumulate};
        if (to != nullptr) {
          tile.rounded = static_cast<uint16_t*>(to->c) + i * to->ldc + j;
          tile.ld_rounded = to->ldc;
          tile.bias_dtype = to->bias_dtype;
          if (to->bias != nullptr) {
            tile.bias = static_cast<const char*>(to->bias) + j * size_of(to->bias_dtype);
          }
        }
        if (shape_.transpose_a) {
          tile.left =
              reinterpret_cast<const char*>(left_panels + i * pairs + seen.begin / 2 * kPanelRows);
          tile.right += seen.begin / 2 * kPanelCols;
          tile.pairs = pairs - seen.begin / 2;
          sum_tile<true>(tile);
        } else {
          tile.left = reinterpret_cast<const char*>(left + i * shape_.lda);
          tile.row_step = shape_.lda * 2;
          tile.pairs = seen.end < depth ? pairs_of(seen.end) : depth / 2;
          tile.has_half = seen.end == depth && depth % 2 != 0;
          sum_tile<false>(tile);
        }
      }
    }
  }

  BlockShape shape_;
  int64_t part_;
};

}  // namespace

bool is_bf16_product(DType dtype) {
  return dtype == DType::bf16 && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

const char* own_bf16_product() {
  if (!is_bf16_product(DType::bf16)) return "";
  return has_bf16_tiles() ? ", bf16: own AMX" : ", bf16: own AVX512-BF16";
}

BlockProductPtr make_bf16_product(const BlockShape& shape) {
  bug_check(is_bf16_product(shape.dtype), "bf16 block product of ", shape.dtype);
  return has_bf16_tiles() ? make_bf16_tile_product(shape) : make_bf16_dot_product(shape);
}

BlockProductPtr make_bf16_dot_product(const BlockShape& shape) {
  return std::make_shared<const Bf16Product>(shape);
}

}  // namespace zinc::kernels::cpu

#else

namespace zinc::kernels::cpu {

bool is_bf16_product(DType) { return false; }
const char* own_bf16_product() { return ""; }

BlockProductPtr make_bf16_product(const BlockShape&) {
  bug_check(false, "bf16 block product without AVX512-BF16");
  return nullptr;
}
BlockProductPtr make_bf16_dot_product(const BlockShape& shape) { return make_bf16_product(shape); }

}  // namespace zinc::kernels::cpu
#endif
