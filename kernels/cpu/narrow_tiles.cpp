// Narrow products of bf16 on the tiles of AMX.
//
// A tile instruction multiplies 16 rows of 32 elements with 32 rows of up to 16: 1 KiB of b in 16
// cycles, however few the rows of a are. So b is read as fast as memory gives it, where lanes would
// need a cycle for 8 bytes of it with 8 rows.
//
// With b transposed, [n, k], its rows are the left tiles as they lie, and c comes out transposed.
// With b as it is, [k, n], two rows at a time are interleaved into right tiles. That leaves columns
// in the order of Note [Order of columns]; sums are kept in that order until the end.
//
// Note [Order of columns]
// Interleaving works on the 128-bit parts of a vector: of 32 columns the first tile gets 0 to 3, 8
// to 11, 16 to 19 and 24 to 27, the second the others.
#include "kernels/cpu/narrow_tiles.h"

#include "core/error.h"
#include "kernels/cpu/bf16_round.h"
#include "kernels/cpu/narrow_product.h"

#include "kernels/cpu/tiles.h"

#ifdef ZINC_BF16_DOT
#include <algorithm>
#include <cstring>

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kStrip = 32;   // columns of two right tiles
constexpr int64_t kAhead = 128;  // elements of a row that are fetched ahead

int64_t whole_tiles(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// The address of an operand's element at `index`.
inline const uint16_t* at(const void* from, int64_t index) {
  return static_cast<const uint16_t*>(from) + index;
}

// b [n, k]: tiles 0 and 1 are sums, [16 rows of b, m]. Strips of rows take turns with them, so that
// the next one does not wait until the sums of one are stored.
class TransposedTiles final : public BlockProduct {
 public:
  explicit TransposedTiles(const BlockShape& shape) : shape_(shape) {
    const int64_t tail = shape.k % kTileDepth;
    for (const int sums : {0, 1}) config_.set(sums, kTileRows, 4 * shape.m);
    config_.set(2, kTileRows, 2 * kTileDepth);
    config_.set(3, kTileDepth / 2, 4 * shape.m);
    if (tail > 0) {
      config_.set(4, kTileRows, 2 * tail);
      config_.set(5, tail / 2, 4 * shape.m);
    }
  }

  int64_t scratch_bytes() const override { return 2 * shape_.m * shape_.k; }

  ZINC_TILES void run(const void* a, const void* b, float* c, std::byte* scratch,
                      bool) const override {
    auto* pairs = reinterpret_cast<uint32_t*>(scratch);  // [k / 2, m]
    for (int64_t r = 0; r < shape_.m; ++r) {
      for (int64_t p = 0; p < shape_.k / 2; ++p) {
        std::memcpy(pairs + p * shape_.m + r, at(a, r * shape_.lda + 2 * p), 4);
      }
    }
    finish_stores();
    _tile_loadconfig(&config_);
    for (int64_t j = 0; j < shape_.n; j += 2 * kTileRows) {
      multiply_strip<0>(b, j, pairs, c);
      if (j + kTileRows < shape_.n) multiply_strip<1>(b, j + kTileRows, pairs, c);
    }
    _tile_release();
  }

 private:
  // Multiplies the strip that begins at row j of b; the last strip overlaps the one before it.
  template <int kSums>
  ZINC_TILES void multiply_strip(const void* b, int64_t j, const uint32_t* pairs, float* c) const {
    const int64_t first = std::min(j, shape_.n - kTileRows);
    const uint16_t* rows = at(b, first * shape_.ldb);
    const auto row_bytes = static_cast<size_t>(2 * shape_.ldb);
    const auto pair_bytes = static_cast<size_t>(4 * shape_.m);
    finish_stores();
    if constexpr (kSums == 0) _tile_zero(0);
    if constexpr (kSums == 1) _tile_zero(1);
    int64_t q = 0;
    for (; q + kTileDepth <= shape_.k; q += kTileDepth) {
      _tile_loadd(2, rows + q, row_bytes);
      _tile_loadd(3, pairs + q / 2 * shape_.m, pair_bytes);
      if constexpr (kSums == 0) _tile_dpbf16ps(0, 2, 3);
      if constexpr (kSums == 1) _tile_dpbf16ps(1, 2, 3);
    }
    if (q < shape_.k) {
      _tile_loadd(4, rows + q, row_bytes);
      _tile_loadd(5, pairs + q / 2 * shape_.m, pair_bytes);
      if constexpr (kSums == 0) _tile_dpbf16ps(0, 4, 5);
      if constexpr (kSums == 1) _tile_dpbf16ps(1, 4, 5);
    }
    alignas(64) float sums[kTileRows * kMostNarrowRows];
    if constexpr (kSums == 0) _tile_stored(0, sums, pair_bytes);
    if constexpr (kSums == 1) _tile_stored(1, sums, pair_bytes);
    for (int64_t r = 0; r < shape_.m; ++r) {
      float* const to = c + r * shape_.ldc + first;
      for (int64_t i = j - first; i < kTileRows; ++i) {
        const float sum = sums[i * shape_.m + r];
        to[i] = shape_.accumulate ? to[i] + sum : sum;
      }
    }
  }

  BlockShape shape_;
  TileConfig config_;
};

// b [k, n]: tile 0 is rows of a, 1 and 2 are of b, 3 and 4 sums. Goes along n for 32 rows of b
// after the other, so that memory is read in long runs; sums wait in the scratch.
class PlainTiles final : public BlockProduct {
 public:
  explicit PlainTiles(const BlockShape& shape)
      : shape_(shape),
        depth_(whole_tiles(shape.k, kTileDepth)),
        width_(whole_tiles(shape.n, kStrip)) {
    config_.set(0, shape.m, 2 * kTileDepth);
    for (const int right : {1, 2}) config_.set(right, kTileDepth / 2, 64);
    for (const int sums : {3, 4}) config_.set(sums, shape.m, 64);
  }

  int64_t scratch_bytes() const override {
    return 2 * kTileBytes + shape_.m * (4 * width_ + 2 * depth_);
  }

  ZINC_TILES void run(const void* a, const void* b, float* c, std::byte* scratch,
                      bool) const override {
    std::byte* const tiles = scratch;
    auto* const sums = reinterpret_cast<float*>(scratch + 2 * kTileBytes);  // [m, width]
    auto* const rows = reinterpret_cast<uint16_t*>(sums + shape_.m * width_);
    for (int64_t r = 0; r < shape_.m; ++r) {
      std::copy_n(at(a, r * shape_.lda), shape_.k, rows + r * depth_);
      std::fill_n(rows + r * depth_ + shape_.k, depth_ - shape_.k, uint16_t{0});
    }
    finish_stores();
    _tile_loadconfig(&config_);
    for (int64_t q = 0; q < shape_.k; q += kTileDepth) {
      finish_stores();
      _tile_loadd(0, rows + q, static_cast<size_t>(2 * depth_));
      for (int64_t j = 0; j < shape_.n; j += kStrip) {
        interleave(at(b, q * shape_.ldb + j), shape_.k - q, shape_.n - j, tiles);
        add_strip(q == 0, tiles, sums + j);
      }
    }
    _tile_release();
    for (int64_t r = 0; r < shape_.m; ++r) {
      for (int64_t j = 0; j < shape_.n; j += kStrip) {
        write_columns(sums + r * width_ + j, shape_.n - j, c + r * shape_.ldc + j);
      }
    }
  }

 private:
  // 32 rows of 32 columns at `from` into two tiles; what lies past `rows` or `cols` is zero.
  ZINC_TILES void interleave(const uint16_t* from, int64_t rows, int64_t cols,
                             std::byte* tiles) const {
    const __mmask32 mask = first_elements(cols);
    for (int64_t p = 0; p < kTileDepth / 2; ++p) {
      const uint16_t* row = from + 2 * p * shape_.ldb;
      const int64_t left = rows - 2 * p;
      const __m512i even = _mm512_maskz_loadu_epi16(left > 0 ? mask : 0, row);
      const __m512i odd = _mm512_maskz_loadu_epi16(left > 1 ? mask : 0, row + shape_.ldb);
      _mm_prefetch(row + kAhead, _MM_HINT_T0);
      _mm_prefetch(row + shape_.ldb + kAhead, _MM_HINT_T0);
      _mm512_storeu_si512(tiles + 64 * p, _mm512_unpacklo_epi16(even, odd));
      _mm512_storeu_si512(tiles + kTileBytes + 64 * p, _mm512_unpackhi_epi16(even, odd));
    }
  }

  ZINC_TILES void add_strip(bool is_first, const std::byte* tiles, float* sums) const {
    const auto sum_bytes = static_cast<size_t>(4 * width_);
    finish_stores();
    _tile_loadd(1, tiles, 64);
    _tile_loadd(2, tiles + kTileBytes, 64);
    if (is_first) {
      _tile_zero(3);
      _tile_zero(4);
    } else {
      _tile_loadd(3, sums, sum_bytes);
      _tile_loadd(4, sums + 16, sum_bytes);
    }
    _tile_dpbf16ps(3, 0, 1);
    _tile_dpbf16ps(4, 0, 2);
    _tile_stored(3, sums, sum_bytes);
    _tile_stored(4, sums + 16, sum_bytes);
  }

  // A strip of sums in the order of columns, of which there are `cols`.
  ZINC_TILES void write_columns(const float* sums, int64_t cols, float* to) const {
    const __m512 first = _mm512_loadu_ps(sums), second = _mm512_loadu_ps(sums + 16);
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int half = 0; half < 2; ++half) {
      const int64_t left = cols - 16 * half;
      if (left <= 0) return;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1);
      __m512 sum = _mm512_permutex2var_ps(first, half == 0 ? low : high, second);
      if (shape_.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to + 16 * half), sum);
      _mm512_mask_storeu_ps(to + 16 * half, mask, sum);
    }
  }

  BlockShape shape_;
  int64_t depth_, width_;
  TileConfig config_;
};

}  // namespace

bool fits_tiles(const BlockShape& shape) {
  if (shape.dtype != DType::bf16 || !may_use_tiles()) return false;
  if (shape.transpose_b) return shape.n >= kTileRows && shape.k >= kTileDepth && shape.k % 2 == 0;
  // A single row is multiplied as fast as b is read without tiles, and rows of b need no
  // interleaving.
  return shape.m > 1 && shape.n >= kStrip && shape.k >= kTileDepth;
}

BlockProductPtr make_tiled_product(const BlockShape& shape) {
  bug_check(fits_tiles(shape), "tiled product: the shape does not fit");
  if (shape.transpose_b) return std::make_shared<const TransposedTiles>(shape);
  return std::make_shared<const PlainTiles>(shape);
}

}  // namespace zinc::kernels::cpu

#else

namespace zinc::kernels::cpu {

bool fits_tiles(const BlockShape&) { return false; }
BlockProductPtr make_tiled_product(const BlockShape&) {
  bug_check(false, "tiled product: this CPU has none");
  return nullptr;
}

}  // namespace zinc::kernels::cpu
#endif
