// Block products of bf16 on the tiles of AMX.
//
// 32 x 32 sums stay in four tiles while two tiles of each operand run past them: a step of 32 along
// k loads 4 KiB and takes 64 cycles. The right operand of a part along k is packed once for the
// block, so that its tiles can be read. Within a part, kDepth elements are summed for all of c
// before the next ones: 32 rows of the left operand then stay in the first-level cache while the
// right one runs past them out of the second-level cache.
#include "kernels/cpu/bf16_tiles.h"

#include "core/error.h"
#include "kernels/cpu/bf16_parts.h"
#include "kernels/cpu/tiles.h"

#ifdef ZINC_BF16_DOT
#include "kernels/cpu/bf16_round.h"

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kSide = 32;  // rows and columns of c that are summed at a time
constexpr int64_t kDepth = 256;
// Elements from a packed row of the left operand to the next: an odd number of lines.
constexpr int64_t kLeftStride = kDepth + 32;
// Rows at a multiple of this many elements from each other share few sets of the first-level cache.
constexpr int64_t kBadStride = 512;

int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// 32 x 32 sums of one stretch along k.
struct Square {
  const uint16_t* left;  // 32 rows of whole tiles, left_stride elements apart
  int64_t left_stride;
  const Bf16Pair* right;  // the tiles of its first 16 columns
  int64_t right_step;     // pairs from those to the tiles of the other 16
  int64_t steps;          // of kTileDepth
  bool accumulate;
};

// Writes the sums to `c`, rows ldc apart; accumulating, it starts from the values of `c`.
ZINC_TILES void sum_square(const Square& s, float* c, int64_t ldc) {
  const auto c_bytes = static_cast<size_t>(4 * ldc);
  finish_stores();
  if (s.accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    _tile_loadd(2, c + 16 * ldc, c_bytes);
    _tile_loadd(3, c + 16 * ldc + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const auto left_bytes = static_cast<size_t>(2 * s.left_stride);
  const uint16_t* upper = s.left;
  const uint16_t* lower = s.left + kTileRows * s.left_stride;
  const Bf16Pair* first = s.right;
  const Bf16Pair* second = s.right + s.right_step;
  for (int64_t q = 0; q < s.steps; ++q) {
    _tile_loadd(6, first, 64);
    _tile_loadd(4, upper, left_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, lower, left_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, second, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    upper += kTileDepth;
    lower += kTileDepth;
    first += kTileBytes / 4;
    second += kTileBytes / 4;
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  _tile_stored(2, c + 16 * ldc, c_bytes);
  _tile_stored(3, c + 16 * ldc + 16, c_bytes);
}

class Bf16TileProduct final : public BlockProduct {
 public:
  explicit Bf16TileProduct(const BlockShape& shape) : shape_(shape), part_(part_of(shape.k)) {
    for (int tile = 0; tile < 8; ++tile) config_.set(tile, kTileRows, 64);
  }

  int64_t scratch_bytes() const override { return left_bytes() + right_bytes(); }

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
  static int64_t left_bytes() { return kSide * kLeftStride * 2; }
  int64_t right_bytes() const { return round_up(shape_.n, kSide) * part_ * 2; }

  // A part of the right operand in tiles, and what of the left one is multiplied with it.
  struct Part {
    const uint16_t* left;  // the first element
    const Bf16Pair* right;
    int64_t k, depth;  // [k, k + depth)
    uint16_t* left_rows;
  };

  ZINC_TILES void run_parts(const void* a, const void* b, float* c, std::byte* scratch, bool same_b,
                            const CausalCut& cut, const RoundedOutput* to) const {
    const auto* left = static_cast<const uint16_t*>(a);
    const auto* right = static_cast<const uint16_t*>(b);
    auto* const left_rows = reinterpret_cast<uint16_t*>(scratch);
    auto* const tiles = reinterpret_cast<Bf16Pair*>(scratch + left_bytes());
    finish_stores();
    _tile_loadconfig(&config_);
    for (int64_t k = 0; k < shape_.k; k += part_) {
      const int64_t depth = std::min(part_, shape_.k - k);
      if (same_b && part_ >= shape_.k) {
        // The tiles of the whole b are still there.
      } else if (shape_.transpose_b) {
        pack_right_tiles_transposed(right + k, shape_.ldb, shape_.n, depth, tiles);
      } else {
        pack_right_tiles(right + k * shape_.ldb, shape_.ldb, shape_.n, depth, tiles);
      }
      const Part part{.left = left + (shape_.transpose_a ? k * shape_.lda : k),
                      .right = tiles,
                      .k = k,
                      .depth = depth,
                      .left_rows = left_rows};
      for (int64_t q = 0; q < depth; q += kDepth) {
        sum_stretch(part, q, c, cut, k + q + kDepth >= shape_.k ? to : nullptr);
      }
    }
    _tile_release();
  }

  // [q, q + kDepth) of a part, for all of c.
  ZINC_TILES void sum_stretch(const Part& part, int64_t q, float* c, const CausalCut& cut,
                              const RoundedOutput* to) const {
    const int64_t stretch = std::min(kDepth, part.depth - q);
    for (int64_t i = 0; i < shape_.m; i += kSide) {
      const SeenPart seen = seen_by(cut, shape_, i, kSide, part.k + q, stretch);
      // Whole steps; elements that they read beyond the seen ones are zero in a.
      const int64_t begin = seen.begin / kTileDepth * kTileDepth;
      const int64_t depth = seen.end - begin;
      const bool is_first = part.k + q == 0 && !shape_.accumulate;
      if (depth <= 0 && !is_first && to == nullptr) continue;
      Square square{.left = part.left_rows,
                    .left_stride = kLeftStride,
                    .right = nullptr,
                    .right_step = round_up(part.depth, kTileDepth) / 2 * kTileRows,
                    .steps = (std::max<int64_t>(depth, 0) + kTileDepth - 1) / kTileDepth,
                    .accumulate = !is_first};
      set_left(part, i, q + begin, std::max<int64_t>(depth, 0), square);
      for (int64_t j = 0; j < seen.cols; j += kSide) {
        square.right = part.right + j / kTileRows * square.right_step + (q + begin) / 2 * kTileRows;
        const int64_t rows = std::min(kSide, shape_.m - i), cols = std::min(kSide, seen.cols - j);
        float* const sums = c + i * shape_.ldc + j;
        if (to == nullptr && rows == kSide && cols == kSide) {
          sum_square(square, sums, shape_.ldc);
        } else {
          sum_edge(square, rows, cols, sums, to, i, j);
        }
      }
    }
  }

  // Rows [i, i + 32) of the left operand, elements [q, q + depth) of the part.
  ZINC_TILES void set_left(const Part& part, int64_t i, int64_t q, int64_t depth,
                           Square& square) const {
    const int64_t rows = std::min(kSide, shape_.m - i);
    if (shape_.transpose_a) {
      pack_left_rows_transposed(part.left + q * shape_.lda + i, shape_.lda, rows, depth,
                                kLeftStride, part.left_rows);
      return;
    }
    const uint16_t* const from = part.left + i * shape_.lda + q;
    if (rows == kSide && depth % kTileDepth == 0 && shape_.lda % kBadStride != 0) {
      square.left = from;
      square.left_stride = shape_.lda;
      return;
    }
    pack_left_rows(from, shape_.lda, rows, depth, kLeftStride, part.left_rows);
  }

  // A square of which only some rows and columns are there, or which leaves rounded.
  ZINC_TILES void sum_edge(const Square& square, int64_t rows, int64_t cols, float* sums,
                           const RoundedOutput* to, int64_t i, int64_t j) const {
    alignas(64) float local[kSide * kSide];
    const __mmask16 low = first_lanes(cols), high = first_lanes(cols - 16);
    if (square.accumulate) {
      for (int64_t r = 0; r < kSide; ++r) {
        const __mmask16 row = r < rows ? __mmask16{0xffff} : __mmask16{0};
        _mm512_store_ps(local + r * kSide, _mm512_maskz_loadu_ps(row & low, sums + r * shape_.ldc));
        _mm512_store_ps(local + r * kSide + 16,
                        _mm512_maskz_loadu_ps(row & high, sums + r * shape_.ldc + 16));
      }
    }
    sum_square(square, local, kSide);
    for (const int64_t half : {0, 16}) {
      const __mmask16 mask = half == 0 ? low : high;
      if (mask == 0) break;
      const __m512 bias = to != nullptr && to->bias != nullptr
                              ? load_bias(to->bias, to->bias_dtype, j + half, mask)
                              : _mm512_setzero_ps();
      for (int64_t r = 0; r < rows; ++r) {
        __m512 sum = _mm512_load_ps(local + r * kSide + half);
        if (to == nullptr) {
          _mm512_mask_storeu_ps(sums + r * shape_.ldc + half, mask, sum);
          continue;
        }
        if (to->bias != nullptr) sum = _mm512_add_ps(sum, bias);
        _mm256_mask_storeu_epi16(static_cast<uint16_t*>(to->c) + (i + r) * to->ldc + j + half, mask,
                                 round_to_bf16(sum));
      }
    }
  }

  BlockShape shape_;
  int64_t part_;
  TileConfig config_;
};

}  // namespace

bool has_bf16_tiles() { return may_use_tiles(); }

BlockProductPtr make_bf16_tile_product(const BlockShape& shape) {
  bug_check(has_bf16_tiles() && shape.dtype == DType::bf16, "tile product of ", shape.dtype);
  return std::make_shared<const Bf16TileProduct>(shape);
}

}  // namespace zinc::kernels::cpu

#else

namespace zinc::kernels::cpu {

bool has_bf16_tiles() { return false; }

BlockProductPtr make_bf16_tile_product(const BlockShape&) {
  bug_check(false, "tile product without tiles");
  return nullptr;
}

}  // namespace zinc::kernels::cpu
#endif
