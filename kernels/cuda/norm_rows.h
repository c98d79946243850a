// kernels/cuda/norm_rows.h: how the norms' kernels share out rows, columns and partial sums.
//
// A row belongs to a group of blockDim.x threads: one warp where the row is short (then a block has
// blockDim.y rows at a time), more where it is long. Thread t of the group holds the packs t,
// t + blockDim.x, ... of its row, at most `kPacks` of them in registers; kPacks = 0 is for rows
// that are longer still, whose packs are read again where they are needed.
//
// Column sums (dgamma, dbeta): block b of a fixed number of blocks takes a contiguous run of rows
// and leaves one row of partial sums in the workspace; a second kernel adds those in an order of
// its own. No atomics: the order of every sum is a function of the shape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

// Rows of [cols] elements of T. `stride` in elements.
template <class T>
struct Rows {
  T* data = nullptr;  // null: absent
  int64_t stride = 0;
  __device__ __forceinline__ T* operator[](int64_t row) const { return data + row * stride; }
};

inline constexpr int kWarpRowsPerBlock = 8;
inline constexpr int kMaxBlockThreads = 512;
// Blocks that a GPU holds of the smallest kind; each loops over more rows.
inline constexpr int64_t kMaxRowBlocks = 132 * 32;

template <class T>
Rows<const T> rows_of(const ConstView& view) {
  if (!view) return {};
  return {view.data_as<T>(), row_stride("norm", "rows", view)};
}
template <class T>
Rows<T> rows_of(const View& view) {
  if (!view) return {};
  return {view.data_as<T>(), row_stride("norm", "rows", view)};
}

inline bool can_read_packs(std::initializer_list<ConstView> views) {
  return std::all_of(views.begin(), views.end(), [](const ConstView& view) {
    return !view || is_aligned_for_packs(view, row_stride("norm", "rows", view));
  });
}

struct RowShape {
  dim3 block;
  int packs_per_thread = 0;  // 1 to 4; 0: not held in registers
  int64_t rows_at_a_time = 1;
};

// `most_packs`, 2 to 4: the most packs that a thread may hold.
inline RowShape row_shape(int64_t cols, int pack, int most_packs) {
  const int64_t packs = packs_of(cols, pack);
  const auto held = [most_packs](int64_t per_thread) {
    return per_thread <= most_packs ? static_cast<int>(std::max<int64_t>(1, per_thread)) : 0;
  };
  if (packs <= kWarp * most_packs) {
    return {dim3(kWarp, kWarpRowsPerBlock), held(packs_of(packs, kWarp)), kWarpRowsPerBlock};
  }
  // Two packs a thread: enough loads in flight without too many registers.
  const int64_t threads =
      std::min<int64_t>(kMaxBlockThreads, (packs_of(packs, 2) + kWarp - 1) / kWarp * kWarp);
  return {dim3(static_cast<unsigned>(threads)), held(packs_of(packs, threads)), 1};
}

// Calls `body.template operator()<kPacks>()` for the `packs_per_thread` of row_shape(..., kMost).
template <int kMost, class Body>
void dispatch_packs(int packs_per_thread, Body&& body) {
  switch (packs_per_thread) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 3:
      if constexpr (kMost >= 3) return body.template operator()<3>();
      break;
    case 4:
      if constexpr (kMost >= 4) return body.template operator()<4>();
      break;
    default:
      break;
  }
  return body.template operator()<0>();
}

// Folds a value over the threads of a row's group; all of them get the result.
template <class Fold>
__device__ __forceinline__ float row_reduce(float value, float neutral, Fold fold) {
  return blockDim.x == kWarp ? warp_reduce(value, fold) : block_reduce(value, neutral, fold);
}
__device__ __forceinline__ float row_sum(float value) { return row_reduce(value, 0.0f, Add{}); }

// The same for several sums, in blocks of blockDim.y groups. All threads of the block call it, with
// `turn` 0 and 1 in turn, since a late thread still reads the partial sums of the turn before.
template <int kCount>
__device__ __forceinline__ void row_sums(float (&values)[kCount], int turn) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = warp_sum(values[k]);
  if (blockDim.x == kWarp) return;
  ZINC_SHARED(float, partials, [2][kCount][kMaxBlockThreads / kWarp]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int first = static_cast<int>(threadIdx.y) * warps;
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      partials[turn][k][first + static_cast<int>(threadIdx.x) / kWarp] = values[k];
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = warp_sum(lane < warps ? partials[turn][k][first + lane] : 0.0f);
  }
}

inline int64_t rows_per_block(int64_t rows, int64_t blocks) { return (rows + blocks - 1) / blocks; }

inline constexpr int kColumnSumParts = 16;

// out[c] = (accumulate ? out[c] : 0) + partials[0][c] + partials[1][c] + ..., a warp of columns and
// 16 runs of rows a block.
template <class T>
__global__ void __launch_bounds__(kWarp* kColumnSumParts)
    column_sum_kernel(const float* partials, int64_t count, int64_t cols, bool accumulate, T* out) {
  ZINC_SHARED(float, sums, [kColumnSumParts][kWarp]);
  const int64_t c = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const int64_t each = (count + kColumnSumParts - 1) / kColumnSumParts;
  const int64_t begin = threadIdx.y * each;
  const int64_t end = begin + each < count ? begin + each : count;
  float sum = 0.0f;
  if (c < cols) {
#pragma unroll 8
    for (int64_t k = begin; k < end; ++k) sum += partials[k * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int part = 1; part < kColumnSumParts; ++part) sum += sums[part][threadIdx.x];
  out[c] = T(accumulate ? static_cast<float>(out[c]) + sum : sum);
}

// Stores the sums in a target of any of the dtypes; does nothing where it is absent.
inline void store_column_sums(const char* op, const float* partials, int64_t count, const View& out,
                              bool accumulate, StreamRef stream) {
  if (!out) return;
  const int64_t cols = out.numel();
  if (cols == 0) return;
  dispatch_device_float(op, out.dtype(), [&]<class T>() {
    launch(column_sum_kernel<T>, dim3(static_cast<unsigned>(packs_of(cols, kWarp))),
           dim3(kWarp, kColumnSumParts), 0, stream, partials, count, cols, accumulate,
           out.data_as<T>());
  });
}

}  // namespace zinc::kernels::cuda
