// kernels/cuda/attention_mma.h: shared parts of the attention kernels on tensor cores: tiles of
// bf16 or f16 rows in shared memory, and the two products of a warp's own rows with a tile.
//
// A block of 128 threads has a tile of rows of its own, of which each of the four warps owns
// kRowTiles times 16, and walks over tiles of kCols other rows, which cp.async brings into one of
// two stages while the other is in use. Scores of own rows (down) and walked rows (across), and
// sums of own rows, are fragments as in kernels/cuda/tensor_core.h: with g = lane / 4, t = lane % 4
// element [m][n][e] is that of row 16 m + g + 8 (e / 2) and column 8 n + 2 t + e % 2.
//
// Note [Swizzled tiles]
// Rows lie kD elements apart, without padding; 16-byte chunk c of row r lies at chunk c ^ key(r),
// so that the eight rows which ldmatrix reads of one chunk lie in all 32 banks. As a row begins
// at a multiple of its length, moving by 8 n elements within a row is an xor with 8 n wherever n
// has none of the bits of the chunk before.
#pragma once

#include <cstdint>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/attention_shape.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/special_function.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kRowLanes = 4;  // neighbouring lanes that share the rows of a fragment
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

template <int kRowTiles>
inline constexpr int kOwnRows = kMmaWarps * 16 * kRowTiles;

template <int kRowTiles, int kCols>
using Fragments = float[kRowTiles][kCols / 8][4];
// Scores that are rounded to T: left operands.
template <int kRowTiles, int kCols>
using Weights = uint32_t[kRowTiles][kCols / 16][4];

// Element 0 of the chunk in a tile. Note [Swizzled tiles]
template <int kD>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  static_assert(kD % 32 == 0);
  const int key = kD == 32 ? row >> 1 & 3 : row & 7;
  return row * kD + (chunk ^ key) * 8;
}

// Starts the copies of rows [first, first + kRows) of (b, h) into `tile`; zeros for rows outside
// [begin, end) and for elements from D on, whose addresses are made but not read. All threads of
// the block, each with one chunk of every kStep-th row.
template <int kD, int kRows, class T>
__device__ __forceinline__ void copy_rows_async(T* tile, const HeadRows<const T>& from, int64_t b,
                                                int64_t h, int64_t first, Keys rows, int64_t D) {
  constexpr int kChunks = kD / 8, kStep = kMmaThreads / kChunks;
  static_assert(kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int begin = static_cast<int>(rows.begin - first);
  const int end = chunk * 8 < D ? static_cast<int>(rows.end - first) : begin;
  const T* source = from.at(b, first + row, h) + chunk * 8;
#pragma unroll
  for (int r = 0; r < kRows; r += kStep) {
    const bool valid = row + r >= begin && row + r < end;
    copy_async_16(tile + swizzled<kD>(row + r, chunk), source, valid);
    source += kStep * from.row;
  }
}

// out[row, column] = <own row, walked row>; `own` points to the first row of the warp.
template <int kD, int kRowTiles, int kCols, class T>
__device__ __forceinline__ void multiply_rows(Fragments<kRowTiles, kCols>& out, const T* own,
                                              const T* walked) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_at = swizzled<kD>(lane % 16, lane / 16);
  const int walked_at = swizzled<kD>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[m][n][e] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], own + m * 16 * kD + (own_at ^ k * 16));
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, walked + n * 16 * kD + (walked_at ^ k * 16));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(out[m][2 * n], a[m], b[0], b[1]);
        multiply_add<T>(out[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// out[row, d] += sum over the columns of weights[row, column] * walked[column, first_d + d].
template <int kD, int kOut, int kRowTiles, int kCols, class T>
__device__ __forceinline__ void add_weighted_rows(Fragments<kRowTiles, kOut>& out,
                                                  const Weights<kRowTiles, kCols>& weights,
                                                  const T* walked, int first_d = 0) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int at = swizzled<kD>(lane % 16, lane / 16) ^ first_d;
#pragma unroll
  for (int k = 0; k < kCols / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kOut / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, walked + k * 16 * kD + (at ^ n * 16));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(out[m][2 * n], weights[m][k], b[0], b[1]);
        multiply_add<T>(out[m][2 * n + 1], weights[m][k], b[2], b[3]);
      }
    }
  }
}

// Scores as a left operand: a lane holds the same elements of both.
template <class T, int kRowTiles, int kCols>
__device__ __forceinline__ void round_to(Weights<kRowTiles, kCols>& weights,
                                         const Fragments<kRowTiles, kCols>& scores) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int k = 0; k < kCols / 16; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float(&from)[4] = scores[m][2 * k + r / 2];
        weights[m][k][r] = pair_of<T>(from[r % 2 * 2], from[r % 2 * 2 + 1]);
      }
    }
  }
}

// Body(m, n, e, row, column) for every element of a lane; row within the warp's.
template <int kRowTiles, int kCols, class Body>
__device__ __forceinline__ void for_each_score(Body&& body) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        body(m, n, e, m * 16 + lane / kRowLanes + e / 2 * 8, n * 8 + lane % kRowLanes * 2 + e % 2);
      }
    }
  }
}

// The elements of a lane's scores that dropout keeps; all of them where there is no dropout.
template <int kRowTiles, int kCols>
struct KeptScores {
  static_assert(kCols <= 128);
  uint32_t bits[kRowTiles][2];  // two per n

  // `kept(row, column)`: what dropout multiplies with. A loop over n keeps the code small.
  template <class Kept>
  __device__ __forceinline__ KeptScores(bool has_dropout, Kept&& kept) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) bits[r / 2][r % 2] = has_dropout ? 0 : ~0u;
    if (!has_dropout) return;
#pragma unroll 1
    for (int e = 0; e < kCols / 4; ++e) {
      const int column = e / 2 * 8 + lane % kRowLanes * 2 + e % 2;
#pragma unroll
      for (int r = 0; r < 2 * kRowTiles; ++r) {
        const bool keep = kept(r * 8 + lane / kRowLanes, column) != 0.0f;
        bits[r / 2][r % 2] |= (keep ? 1u : 0u) << e;
      }
    }
  }
  __device__ __forceinline__ bool at(int m, int n, int e) const {
    return (bits[m][e / 2] >> (2 * n + e % 2) & 1u) != 0;
  }
};

// Stores a warp's rows, each times its `factor`, to rows [first, limit) of (b, h) from element
// `first_d` on. The rows go through the warp's part of a tile that no thread reads any more; the
// call comes behind a barrier.
template <int kD, int kOut, int kRowTiles, class T>
__device__ __forceinline__ void store_rows(T* own, const Fragments<kRowTiles, kOut>& values,
                                           const float (&factor)[kRowTiles][2],
                                           const HeadRows<T>& to, int64_t b, int64_t h,
                                           int64_t first, int64_t limit, int64_t D, bool aligned,
                                           int first_d = 0) {
  constexpr int kChunks = kOut / 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / kRowLanes;
        const float scale = factor[m][half];
        *reinterpret_cast<uint32_t*>(own + swizzled<kD>(row, n) + lane % kRowLanes * 2) =
            pair_of<T>(values[m][n][2 * half] * scale, values[m][n][2 * half + 1] * scale);
      }
    }
  }
  __syncwarp();
#pragma unroll 4
  for (int e = lane; e < 16 * kRowTiles * kChunks; e += kWarp) {
    const int row = e / kChunks, chunk = e % kChunks;
    if (first + row >= limit || first_d + chunk * 8 >= D) continue;
    store_pack(to.at(b, first + row, h), first_d / 8 + chunk, D, aligned,
               load_pack(own + swizzled<kD>(row, chunk)));
  }
}

// The keys that the own rows of a thread see; `begin == end` for none.
template <int kRowTiles>
struct RowKeys {
  int begin[kRowTiles][2], end[kRowTiles][2];

  // `first`: the first row of the warp.
  __device__ __forceinline__ RowKeys(const AttentionShape& shape, int64_t b, int64_t first) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t i = first + m * 16 + half * 8 + lane / kRowLanes;
        const Keys keys = i < shape.Tq ? shape.keys_of(b, i) : Keys{0, 0};
        const bool none = keys.begin >= keys.end;
        begin[m][half] = none ? 0 : static_cast<int>(keys.begin);
        end[m][half] = none ? 0 : static_cast<int>(keys.end);
      }
    }
  }
  __device__ __forceinline__ bool sees(int m, int half, int j) const {
    return j >= begin[m][half] && j < end[m][half];
  }
  // any_sees: whether a row of the warp sees any of the keys; all_see: whether all rows see all
  // keys.
  __device__ __forceinline__ bool any_sees(int first, int count) const {
    int any = 0;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      any |= begin[r / 2][r % 2] < first + count && end[r / 2][r % 2] > first ? 1 : 0;
    }
    return __any_sync(kFullWarp, any) != 0;
  }
  __device__ __forceinline__ bool all_see(int first, int count) const {
    int all = 1;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      all &= begin[r / 2][r % 2] <= first && end[r / 2][r % 2] >= first + count ? 1 : 0;
    }
    return __all_sync(kFullWarp, all) != 0;
  }
};

// A range that holds every key that one of the queries [first, first + count) sees. All threads of
// the block call it; there are at least `count`.
__device__ __forceinline__ Keys keys_of_rows(const AttentionShape& shape, int64_t b, int64_t first,
                                             int count) {
  const int64_t last = (first + count < shape.Tq ? first + count : shape.Tq) - 1;
  Keys all = shape.keys_by_position(b, first, last);
  if (shape.has_keys_of_values()) {
    const int64_t i = first + static_cast<int>(threadIdx.x);
    const Keys mine = i <= last ? shape.keys_of(b, i) : Keys{shape.Tk, 0};
    const bool none = mine.begin >= mine.end;
    all.begin = block_reduce(none ? shape.Tk : mine.begin, shape.Tk, Min{});
    all.end = block_reduce(none ? int64_t{0} : mine.end, int64_t{0}, Max{});
  }
  return all;
}

struct QueryAndKey {
  int64_t i, j;
};

// Turns the lane's products into scores, one pass for each term that the problem has. `place(row,
// column)` is the query and the key, also of rows and columns beyond the last; `capped(m, n, e,
// column, slope)` is called where there is a cap. No branch depends on a score.
template <int kRowTiles, int kCols, class Place, class Capped>
__device__ __forceinline__ void finish_scores(Fragments<kRowTiles, kCols>& scores,
                                              const AttentionShape& shape, int64_t b, int64_t h,
                                              Place&& place, Capped&& capped) {
  for_each_score<kRowTiles, kCols>(
      [&](int m, int n, int e, int, int) { scores[m][n][e] *= shape.scale; });
  if (shape.softcap != 0.0f) {
    for_each_score<kRowTiles, kCols>([&](int m, int n, int e, int, int column) {
      const Score score = shape.capped(fast_tanh(scores[m][n][e] * shape.inverse_softcap));
      scores[m][n][e] = score.value;
      capped(m, n, e, column, score.slope);
    });
  }
  if (shape.slopes != nullptr) {
    for_each_score<kRowTiles, kCols>([&](int m, int n, int e, int row, int column) {
      const QueryAndKey at = place(row, column);
      scores[m][n][e] -= shape.alibi(h, at.i, at.j);
    });
  }
  if (shape.bias != nullptr) {
    for_each_score<kRowTiles, kCols>([&](int m, int n, int e, int row, int column) {
      const QueryAndKey at = place(row, column);
      scores[m][n][e] +=
          shape.bias_at(b, h, min_of(at.i, shape.Tq - 1), min_of(at.j, shape.Tk - 1));
    });
  }
}

// Of which terms a kernel knows. Kernels that know of fewer need fewer registers.
enum class Known : uint8_t {
  plain,   // scaled products: nothing is added to them, nothing is dropped, and the largest product
           // makes the largest score
  terms,   // all but a layout
  layout,  // all
};

// What the layout shows of head h. A kernel that knows of no layout sees everything.
template <bool kKnown>
struct Shown {
  const AttentionShape& shape;
  int64_t h;

  __device__ __forceinline__ bool any(const Keys& queries, const Keys& keys) const {
    if constexpr (!kKnown) return true;
    return shape.layout_shows_any(h, queries, keys);
  }
  // The first tile of kKeys keys from `first` on of which the queries see any; `end` or more where
  // there is none before `end`.
  template <int kKeys>
  __device__ __forceinline__ int64_t next_tile(const Keys& queries, int64_t first,
                                               int64_t end) const {
    while (first < end && !any(queries, {first, first + kKeys})) first += kKeys;
    return first;
  }
  // Scores that are hidden become minus infinity. `queries`, `keys`: those of the fragments;
  // `place` as for finish_scores().
  template <int kRowTiles, int kCols, class Place>
  __device__ __forceinline__ void hide(Fragments<kRowTiles, kCols>& scores, const Keys& queries,
                                       const Keys& keys, Place&& place) const {
    if constexpr (kKnown) {
      if (shape.layout_shows_all(h, queries, keys)) return;
      for_each_score<kRowTiles, kCols>([&](int m, int n, int e, int row, int column) {
        const QueryAndKey at = place(row, column);
        const bool seen =
            shape.layout_sees(h, min_of(at.i, shape.Tq - 1), min_of(at.j, shape.Tk - 1));
        scores[m][n][e] = seen ? scores[m][n][e] : -INFINITY;
      });
    }
  }
};

// The factor that the kernels multiply scores with before the power of two.
template <bool kPlain>
__device__ __forceinline__ float score_factor(const AttentionShape& shape) {
  return kPlain ? shape.scale * kLog2E : kLog2E;
}

inline bool is_plain(const AttentionShape& shape) {
  return shape.slopes == nullptr && shape.bias == nullptr && shape.softcap == 0.0f &&
         shape.dropout == 0.0f && shape.scale > 0.0f;
}

inline unsigned blocks_of(int64_t rows, int64_t rows_per_block) {
  return static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block);
}

// Calls body.operator()<T, kD, Known>() with the smallest kD not less than the head size.
template <class Body>
void dispatch_mma(const AttentionProblem& p, const AttentionShape& shape, Body&& body) {
  const auto with_size = [&]<class T, int kD>() {
    if (shape.layout != nullptr) return body.template operator()<T, kD, Known::layout>();
    if (is_plain(shape)) return body.template operator()<T, kD, Known::plain>();
    body.template operator()<T, kD, Known::terms>();
  };
  const auto with_type = [&]<class T>() {
    if (p.D <= 32) return with_size.template operator()<T, 32>();
    if (p.D <= 64) return with_size.template operator()<T, 64>();
    if (p.D <= 128) return with_size.template operator()<T, 128>();
    with_size.template operator()<T, 256>();
  };
  if (p.dtype == DType::bf16) return with_type.template operator()<bf16>();
  with_type.template operator()<f16>();
}

}  // namespace zinc::kernels::cuda
