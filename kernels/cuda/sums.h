// kernels/cuda/sums.h: sums and maxima of the rows and of the columns of a matrix, in the order of
// Note [Order of sums] of kernels/reduce.h, so that the bits are the CPU's. No workspace, no
// atomics.
//
// A Term gives the matrix: `kCount` (elements of a 16-byte access), load(row, first, out) and
// load_whole(row, first, out). Both read elements [first, first + kCount) of a row. load() gives
// anything beyond the last element; load_whole() is called where is_whole(first).
//
// Rows: groups of 16 / kCount threads fold a row, and a group takes a block of 1024 elements. The
// threads of a group hold the 16 lanes.
//
// Columns: 256 rows of threads fold a block of columns, 32 bytes wide, which is what memory moves
// at once. Each row of threads takes 64 rows of the matrix, eight of them on their way at a time:
// few columns make few blocks, and these have to keep the memory busy all the same.
//
// The thread that reads the root of a tree in shared memory is the one that writes there in the
// next round, so no barrier stands between.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/index_tree.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

struct SumOf {
  static __device__ __forceinline__ float neutral() { return 0.0f; }
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
// NaN beats all; of two equal values the first stays.
struct LargestOf {
  static __device__ __forceinline__ float neutral() { return -INFINITY; }
  __device__ __forceinline__ float operator()(float a, float b) const {
    return a >= b || a != a ? a : b;
  }
};

// The target of a sum: y = (accumulate ? y : 0) + sum / divisor, rounded once.
template <class Target>
struct SumTarget {
  Target* y;
  float divisor = 1.0f;
  bool accumulate = false;
  __device__ __forceinline__ void store(int64_t i, float sum) const {
    const float value = sum / divisor;
    y[i] = Target(accumulate ? static_cast<float>(y[i]) + value : value);
  }
};

// Elements of T at rows of one stride.
template <class T>
struct MatrixTerm {
  static constexpr int kCount = kPack<T>;
  const T* x;
  int64_t stride;
  int64_t cols;
  bool aligned;
  __device__ __forceinline__ void load(int64_t row, int64_t first, float (&out)[kCount]) const {
    load_floats(x + row * stride, first, cols, aligned, out);
  }
  __device__ __forceinline__ bool is_whole(int64_t first) const {
    return aligned && first + kCount <= cols;
  }
  __device__ __forceinline__ void load_whole(int64_t row, int64_t first,
                                             float (&out)[kCount]) const {
    load_floats(x + row * stride, first, cols, WholePacks{}, out);
  }
};

inline constexpr int kSumThreads = 256;
inline constexpr int kSumLanes = 16;
inline constexpr int64_t kSumBlock = 1024;
inline constexpr int64_t kSumRows = 64;  // rows that a thread adds one after the other
inline constexpr int kColumnThreads = 512;
inline constexpr int kColumnPacks = 2;
inline constexpr int kColumnParts = kColumnThreads / kColumnPacks;

// Folds the lanes of a group's block as a tree; the first thread of the group gets the result.
template <int kCount, class Fold>
__device__ __forceinline__ float fold_lanes(float (&lane)[kCount], Fold fold) {
  constexpr unsigned kGroup = kSumLanes / kCount;
#pragma unroll
  for (unsigned width = kGroup / 2; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      lane[i] = fold(lane[i], __shfl_down_sync(kFullWarp, lane[i], width, kGroup));
    }
  }
#pragma unroll
  for (int width = kCount / 2; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) lane[i] = fold(lane[i], lane[i + width]);
  }
  return lane[0];
}

// blockDim.x threads, a power of two, fold a row; blockDim.y rows at a time.
template <class Fold, class Term, class Target>
__global__ void __launch_bounds__(kSumThreads)
    fold_rows_kernel(Term term, int64_t rows, int64_t cols, SumTarget<Target> target) {
  constexpr int kCount = Term::kCount;
  constexpr int kGroup = kSumLanes / kCount;
  const Fold fold{};
  const int groups = static_cast<int>(blockDim.x) / kGroup;
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int64_t lane = threadIdx.x % kGroup;
  const int64_t blocks = (cols + kSumBlock - 1) / kSumBlock;
  ZINC_SHARED(float, sums, [kSumThreads / kGroup]);
  ZINC_SHARED(float, levels, [kTreeLevels]);
  const bool one_round = blocks <= groups;  // else the block has one row
  float* mine = sums + threadIdx.y * groups;
  const int64_t row_step = int64_t{gridDim.x} * blockDim.y;
  for (int64_t base = int64_t{blockIdx.x} * blockDim.y; base < rows; base += row_step) {
    const int64_t r = base + threadIdx.y;
    TreeOfParts<float> tree{levels};
    float total = 0.0f;
    for (int64_t first = 0; first < blocks; first += groups) {
      float sum[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] = Fold::neutral();
      if (r < rows) {
        const int64_t begin = (first + group) * kSumBlock;
        const int64_t end = begin + kSumBlock < cols ? begin + kSumBlock : cols;
        for (int64_t c = begin + lane * kCount; c < end; c += kSumLanes) {
          float values[kCount];
          term.load(r, c, values);
#pragma unroll
          for (int i = 0; i < kCount; ++i) {
            if (c + i < cols) sum[i] = fold(sum[i], values[i]);
          }
        }
      }
      const float block_sum = fold_lanes(sum, fold);
      if (lane == 0) mine[group] = block_sum;
      __syncthreads();
      const int64_t left = blocks - first;
      fold_shared_tree(mine, lane == 0 ? group : groups,
                       static_cast<int>(left < groups ? left : groups), fold);
      if (threadIdx.x == 0 && one_round) total = mine[0];
      if (threadIdx.x == 0 && !one_round) tree.push(mine[0], fold);
    }
    if (threadIdx.x == 0 && !one_round) total = tree.total(0.0f, fold);
    if (threadIdx.x == 0 && r < rows) target.store(r, total);
  }
}

// Rows [begin, end) of a thread's columns, one after the other; at least one.
template <class Fold, class Term>
__device__ __forceinline__ void fold_rows_of_column(const Term& term, int64_t begin, int64_t end,
                                                    int64_t first_col, float (&sum)[Term::kCount],
                                                    Fold fold) {
  constexpr int kCount = Term::kCount;
  float values[kCount];
  term.load(begin, first_col, sum);
  if (term.is_whole(first_col)) {
#pragma unroll 8
    for (int64_t r = begin + 1; r < end; ++r) {
      term.load_whole(r, first_col, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] = fold(sum[i], values[i]);
    }
    return;
  }
#pragma unroll 1
  for (int64_t r = begin + 1; r < end; ++r) {
    term.load(r, first_col, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] = fold(sum[i], values[i]);
  }
}

template <class Fold, class Term, class Target>
__global__ void __launch_bounds__(kColumnThreads)
    fold_columns_kernel(Term term, int64_t rows, int64_t cols, SumTarget<Target> target) {
  constexpr int kCount = Term::kCount;
  const Fold fold{};
  const int x = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  const int64_t first_col = (int64_t{blockIdx.x} * kColumnPacks + x) * kCount;
  const int64_t blocks = (rows + kSumRows - 1) / kSumRows;
  ZINC_SHARED(float, sums, [kColumnParts][kColumnPacks][kCount]);
  ZINC_SHARED(float, levels, [kTreeLevels][kColumnPacks][kCount]);
  int64_t rounds = 0;
  for (int64_t first = 0; first < blocks; first += kColumnParts, ++rounds) {
    const int64_t begin = (first + part) * kSumRows;
    const int64_t end = begin + kSumRows < rows ? begin + kSumRows : rows;
    if (begin < end && first_col < cols) {
      float sum[kCount];
      fold_rows_of_column(term, begin, end, first_col, sum, fold);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[part][x][i] = sum[i];
    }
    __syncthreads();
    const int64_t left = blocks - first;
    const int parts = static_cast<int>(left < kColumnParts ? left : kColumnParts);
    for (int width = 1; width < parts; width *= 2) {
      if (part % (2 * width) == 0 && part + width < parts && first_col < cols) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          sums[part][x][i] = fold(sums[part][x][i], sums[part + width][x][i]);
        }
      }
      __syncthreads();
    }
    if (part == 0 && first_col < cols) {
      for (int i = 0; i < kCount; ++i) {
        TreeOfParts<float>{&levels[0][x][i], kColumnPacks * kCount, rounds}.push(sums[0][x][i],
                                                                                 fold);
      }
    }
  }
  if (part != 0) return;
  for (int i = 0; i < kCount; ++i) {
    if (first_col + i >= cols) continue;
    const TreeOfParts<float> tree{&levels[0][x][i], kColumnPacks * kCount, rounds};
    target.store(first_col + i, tree.total(0.0f, fold));
  }
}

// y[r] of every row, `cols` >= 0.
template <class Fold, class Term, class Target>
void launch_fold_rows(const Term& term, int64_t rows, int64_t cols, const SumTarget<Target>& target,
                      StreamRef stream) {
  constexpr int64_t kMaxGrid = 132 * 16;
  constexpr int kGroup = kSumLanes / Term::kCount;
  int threads = kGroup;
  while (threads < kSumThreads && threads / kGroup * kSumBlock < cols) threads *= 2;
  const dim3 block(static_cast<unsigned>(threads), static_cast<unsigned>(kSumThreads / threads));
  const int64_t blocks = std::min(kMaxGrid, packs_of(rows, block.y));
  launch(fold_rows_kernel<Fold, Term, Target>, dim3(static_cast<unsigned>(blocks)), block, 0,
         stream, term, rows, cols, target);
}

// y[c] of every column, `rows` >= 0.
template <class Fold, class Term, class Target>
void launch_fold_columns(const Term& term, int64_t rows, int64_t cols,
                         const SumTarget<Target>& target, StreamRef stream) {
  const int64_t blocks = packs_of(cols, kColumnPacks * Term::kCount);
  launch(fold_columns_kernel<Fold, Term, Target>, dim3(static_cast<unsigned>(blocks)),
         dim3(kColumnPacks, kColumnParts), 0, stream, term, rows, cols, target);
}

// Calls `body.template operator()<Target>()` for a target of T or f32.
template <class T, class Body>
void dispatch_sum_target(DType dtype, Body&& body) {
  if (dtype == kDTypeOf<T>) return body.template operator()<T>();
  body.template operator()<float>();
}

}  // namespace zinc::kernels::cuda
