// kernels/cuda/norm_backward.h: the backward pass of LayerNorm and RMSNorm, formulas in
// kernels/layernorm.h and kernels/rmsnorm.h; rows and columns as in norm_rows.h. Bytes moved: dy
// and x (and dresidual) in, dx out, and the partial sums of dgamma and dbeta: at most 264 rows of
// each.
#pragma once

#include "kernels/checks.h"
#include "kernels/cpu/norm_blocks.h"
#include "kernels/cuda/norm_rows.h"
#include "kernels/cuda/special_function.h"
#include "kernels/layernorm.h"

namespace zinc::kernels::cuda {

template <class T, class Aligned>
struct NormBackwardArgs {
  Rows<const T> dy, x, dresidual;
  const T* gamma;
  const float *mean, *rstd;  // mean: LayerNorm only
  Rows<T> dx;
  float *dgamma, *dbeta;  // partial sums [blocks, cols]; null: not wanted
  int64_t rows, cols, rows_per_block;
  Aligned aligned;
};

// Per row: the statistics that turn x into h, and the row's two means.
struct NormRow {
  float mean = 0.0f, rstd = 0.0f;
  float of_g = 0.0f;   // sum_c(g) / C, LayerNorm only
  float of_gh = 0.0f;  // sum_c(g * h) / C
  __device__ __forceinline__ float normalised(float x) const { return (x - mean) * rstd; }
};

// The gradients of a weight at a thread's columns.
template <class T>
struct ColumnSums {
  float dgamma[kPack<T>] = {};
  float dbeta[kPack<T>] = {};
};

template <bool kLayer, class T, class Aligned>
__device__ __forceinline__ NormRow begin_row(const NormBackwardArgs<T, Aligned>& args, int64_t r) {
  NormRow row;
  row.rstd = args.rstd[r];
  if constexpr (kLayer) row.mean = args.mean[r];
  return row;
}

template <class T>
__device__ __forceinline__ void add_to_row(const Pack<T>& dy, const Pack<T>& x,
                                           const Pack<T>& gamma, NormRow& row) {
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float g = static_cast<float>(dy.at[i]) * static_cast<float>(gamma.at[i]);
    row.of_g += g;
    row.of_gh += g * row.normalised(static_cast<float>(x.at[i]));
  }
}

// `turn` as in row_sums().
template <bool kLayer>
__device__ __forceinline__ void finish_row(NormRow& row, int64_t cols, int turn) {
  const auto n = static_cast<float>(cols);
  if constexpr (kLayer) {
    float sums[2] = {row.of_g, row.of_gh};
    row_sums(sums, turn);
    row.of_g = sums[0] / n;
    row.of_gh = sums[1] / n;
  } else {
    float sums[1] = {row.of_gh};
    row_sums(sums, turn);
    row.of_gh = sums[0] / n;
  }
}

// dx of pack p of row r; adds to the gradients of the weights.
template <bool kLayer, class T, class Aligned>
__device__ __forceinline__ void finish_pack(const NormBackwardArgs<T, Aligned>& args, int64_t r,
                                            int64_t p, const Pack<T>& dy, const Pack<T>& x,
                                            const Pack<T>& gamma, const NormRow& row,
                                            ColumnSums<T>& sums) {
  Pack<T> past{};
  if (args.dresidual.data != nullptr) {
    past = load_pack(args.dresidual[r], p, args.cols, args.aligned);
  }
  float dx[kPack<T>];
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float d = static_cast<float>(dy.at[i]);
    const float h = row.normalised(static_cast<float>(x.at[i]));
    sums.dgamma[i] += d * h;
    float g = d * static_cast<float>(gamma.at[i]);
    if constexpr (kLayer) {
      sums.dbeta[i] += d;
      g -= row.of_g;
    }
    float value = row.rstd * (g - h * row.of_gh);
    if (args.dresidual.data != nullptr) value += static_cast<float>(past.at[i]);
    dx[i] = value;
  }
  store_pack(args.dx[r], p, args.cols, args.aligned, rounded_pack<T>(dx));
}

// Adds the sums of the block's row groups, in their order, and writes the block's row of `out`. All
// threads of the block call it.
template <class T>
__device__ __forceinline__ void store_partials(float* out, int64_t p, int64_t cols,
                                               float (&values)[kPack<T>]) {
  if (blockDim.y > 1) {
    ZINC_SHARED(float, groups, [kPack<T>][kMaxBlockThreads]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      groups[i][threadIdx.y * blockDim.x + threadIdx.x] = values[i];
    }
    __syncthreads();
    if (threadIdx.y != 0) return;
    for (unsigned group = 1; group < blockDim.y; ++group) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) values[i] += groups[i][group * blockDim.x + threadIdx.x];
    }
  }
  float* row = out + int64_t{blockIdx.x} * cols;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    if (p * kPack<T> + i < cols) row[p * kPack<T> + i] = values[i];
  }
}

// Only rows of one warp have three packs a thread or more. Two blocks share the registers of a
// multiprocessor where that spills next to nothing.
template <int kPacks>
inline constexpr int kBackwardThreads = kPacks <= 2 ? kMaxBlockThreads : kMaxBlockThreads / 2;
template <int kPacks>
inline constexpr int kBackwardBlocks = kPacks == 3 ? 2 : 1;

template <bool kLayer, class T, class Aligned, int kPacks>
__global__ void __launch_bounds__(kBackwardThreads<kPacks>, kBackwardBlocks<kPacks>)
    norm_backward_kernel(NormBackwardArgs<T, Aligned> args) {
  const int64_t step = blockDim.x;
  const int64_t cols = args.cols;
  const int64_t begin = int64_t{blockIdx.x} * args.rows_per_block;
  const int64_t end =
      begin + args.rows_per_block < args.rows ? begin + args.rows_per_block : args.rows;
  ColumnSums<T> sums[kPacks];
  int turn = 0;
  for (int64_t first = begin; first < end; first += blockDim.y, turn ^= 1) {
    const int64_t r = first + threadIdx.y;
    const bool is_row = r < end;  // groups without one go along to the barriers
    NormRow row;
    Pack<T> dy[kPacks] = {}, x[kPacks] = {};
    if (is_row) {
      row = begin_row<kLayer>(args, r);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        dy[k] = load_pack(args.dy[r], threadIdx.x + k * step, cols, args.aligned);
        x[k] = load_pack(args.x[r], threadIdx.x + k * step, cols, args.aligned);
      }
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int64_t p = threadIdx.x + k * step;
        add_to_row(dy[k], x[k], load_pack(args.gamma, p, cols, args.aligned), row);
      }
    }
    finish_row<kLayer>(row, cols, turn);
    if (!is_row) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t p = threadIdx.x + k * step;
      finish_pack<kLayer>(args, r, p, dy[k], x[k], load_pack(args.gamma, p, cols, args.aligned),
                          row, sums[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t p = threadIdx.x + k * step;
    if (args.dgamma != nullptr) store_partials<T>(args.dgamma, p, cols, sums[k].dgamma);
    if (args.dbeta != nullptr) store_partials<T>(args.dbeta, p, cols, sums[k].dbeta);
  }
}

// Adds to the block's row of partial sums, which its first row begins.
template <class T>
__device__ __forceinline__ void add_partials(float* out, int64_t p, int64_t cols, bool first,
                                             const float (&values)[kPack<T>]) {
  if (out == nullptr) return;
  float* row = out + int64_t{blockIdx.x} * cols;
  for (int i = 0; i < kPack<T>; ++i) {
    const int64_t c = p * kPack<T> + i;
    if (c < cols) row[c] = first ? values[i] : row[c] + values[i];
  }
}

// Rows that do not fit into registers: read twice; the block's sums are kept in the workspace.
template <bool kLayer, class T>
__global__ void __launch_bounds__(kMaxBlockThreads)
    norm_backward_long_kernel(NormBackwardArgs<T, bool> args) {
  const int64_t cols = args.cols;
  const int64_t packs = (cols + kPack<T> - 1) / kPack<T>;
  const int64_t begin = int64_t{blockIdx.x} * args.rows_per_block;
  const int64_t end =
      begin + args.rows_per_block < args.rows ? begin + args.rows_per_block : args.rows;
  int turn = 0;
  for (int64_t r = begin; r < end; ++r, turn ^= 1) {
    NormRow row = begin_row<kLayer>(args, r);
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      add_to_row(load_pack(args.dy[r], p, cols, args.aligned),
                 load_pack(args.x[r], p, cols, args.aligned),
                 load_pack(args.gamma, p, cols, args.aligned), row);
    }
    finish_row<kLayer>(row, cols, turn);
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      ColumnSums<T> sums;
      finish_pack<kLayer>(args, r, p, load_pack(args.dy[r], p, cols, args.aligned),
                          load_pack(args.x[r], p, cols, args.aligned),
                          load_pack(args.gamma, p, cols, args.aligned), row, sums);
      add_partials<T>(args.dgamma, p, cols, r == begin, sums.dgamma);
      add_partials<T>(args.dbeta, p, cols, r == begin, sums.dbeta);
    }
  }
}

// The targets of the column sums; `mean` and `dbeta` are LayerNorm's.
struct NormBackward {
  const char* op;
  ConstView dy, x, gamma, mean, rstd, dresidual;
  View dx, dgamma, dbeta;
  bool accumulate_dgamma = false;
  bool accumulate_dbeta = false;
  View workspace;
};

// Rows of a block at a time: groups that are no warps share a block too, so that the few blocks
// which leave column sums keep many loads on their way.
inline RowShape backward_shape(int64_t cols, int pack, int most_packs) {
  RowShape shape = row_shape(cols, pack, most_packs);
  if (shape.block.x > kWarp && shape.packs_per_thread > 2) shape.packs_per_thread = 0;
  if (shape.packs_per_thread > 0 && shape.block.x > kWarp) {
    shape.block.y = kMaxBlockThreads / shape.block.x;
    shape.rows_at_a_time = shape.block.y;
  }
  return shape;
}

template <bool kLayer>
void launch_norm_backward(const NormBackward& args, StreamRef stream) {
  dispatch_device_float(args.op, args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    constexpr int kMostPacks = sizeof(T) == 2 ? 4 : 2;
    const RowShape shape = backward_shape(cols, kPack<T>, kMostPacks);
    // The same blocks whichever of the sums are wanted: their order is that of the shape.
    const bool has_sums = args.dgamma || args.dbeta;
    const int64_t most = has_sums ? kMaxNormSumBlocks
                                  : std::min(kMaxRowBlocks, packs_of(rows, shape.rows_at_a_time));
    const int64_t per_block =
        std::max<int64_t>(1, rows_per_block(rows, std::min(most, std::max<int64_t>(1, rows))));
    const int64_t blocks = packs_of(rows, per_block);
    float* dgamma = args.dgamma ? static_cast<float*>(args.workspace.data()) : nullptr;
    float* dbeta =
        args.dbeta ? static_cast<float*>(args.workspace.data()) + blocks * cols : nullptr;
    const bool fits = can_read_packs({args.dy, args.x, args.dresidual, args.gamma, args.dx});
    const auto kernel_args = [&]<class Aligned>(Aligned aligned) {
      return NormBackwardArgs<T, Aligned>{rows_of<T>(args.dy),
                                          rows_of<T>(args.x),
                                          rows_of<T>(args.dresidual),
                                          args.gamma.data_as<T>(),
                                          args.mean ? args.mean.data_as<float>() : nullptr,
                                          args.rstd.data_as<float>(),
                                          rows_of<T>(args.dx),
                                          dgamma,
                                          dbeta,
                                          rows,
                                          cols,
                                          per_block,
                                          aligned};
    };
    const dim3 grid(static_cast<unsigned>(blocks));
    if (args.x.numel() > 0) {
      dispatch_packs<kMostPacks>(shape.packs_per_thread, [&]<int kPacks>() {
        if constexpr (kPacks == 0) {
          launch(norm_backward_long_kernel<kLayer, T>, grid, shape.block, 0, stream,
                 kernel_args(fits));
        } else {
          dispatch_whole_packs(cols, kPack<T>, fits, [&]<class Aligned>(Aligned aligned) {
            launch(norm_backward_kernel<kLayer, T, Aligned, kPacks>, grid, shape.block, 0, stream,
                   kernel_args(aligned));
          });
        }
      });
    }
    store_column_sums(args.op, dgamma, blocks, args.dgamma, args.accumulate_dgamma, stream);
    store_column_sums(args.op, dbeta, blocks, args.dbeta, args.accumulate_dbeta, stream);
  });
}

}  // namespace zinc::kernels::cuda
