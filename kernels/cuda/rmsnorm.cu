// RMSNorm, forward and backward: formulas in kernels/rmsnorm.h, rows and columns as in norm_rows.h.
// Bytes moved: forward x in, y out; backward dy and x (and dresidual) in, dx out, and the partial
// sums of dgamma: at most 128 rows.
#include "kernels/rmsnorm.h"

#include "kernels/checks.h"
#include "kernels/cuda/norm_rows.h"
#include "kernels/layernorm.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int64_t kMaxGrid =
    132 * 16;  // enough blocks to fill any GPU; each goes on with more rows

template <class T>
__device__ __forceinline__ float sum_of_squares(const Pack<T>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float value = static_cast<float>(pack.at[i]);
    sum += value * value;
  }
  return sum;
}

template <class T>
__device__ __forceinline__ Pack<T> scaled(const Pack<T>& x, const Pack<T>& gamma, float rstd) {
  Pack<T> y;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    y.at[i] = T(static_cast<float>(x.at[i]) * rstd * static_cast<float>(gamma.at[i]));
  }
  return y;
}

template <class T, int kPacks>
__global__ void __launch_bounds__(kMaxBlockThreads)
    forward_kernel(Rows<const T> x, const T* gamma, Rows<T> y, float* rstd, int64_t rows,
                   int64_t cols, float eps, bool aligned) {
  const int64_t step = blockDim.x;
  const int64_t packs = (cols + kPack<T> - 1) / kPack<T>;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    Pack<T> held[kPacks == 0 ? 1 : kPacks];
    float sum = 0.0f;
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        sum += sum_of_squares(load_pack(x[r], p, cols, aligned));
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        held[k] = load_pack(x[r], threadIdx.x + k * step, cols, aligned);
      }
#pragma unroll
      for (int k = 0; k < kPacks; ++k) sum += sum_of_squares(held[k]);
    }
    const float scale = 1.0f / sqrtf(row_sum(sum) / static_cast<float>(cols) + eps);
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        const Pack<T> again = load_pack(x[r], p, cols, aligned);
        store_pack(y[r], p, cols, aligned,
                   scaled(again, load_pack(gamma, p, cols, aligned), scale));
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int64_t p = threadIdx.x + k * step;
        store_pack(y[r], p, cols, aligned,
                   scaled(held[k], load_pack(gamma, p, cols, aligned), scale));
      }
    }
    if (rstd != nullptr && threadIdx.x == 0) rstd[r] = scale;
  }
}

template <class T>
struct BackwardArgs {
  Rows<const T> dy, x, dresidual;
  const T* gamma;
  const float* rstd;
  Rows<T> dx;
  float* partials;  // [blocks, cols]; null: dgamma is not wanted
  int64_t rows, cols, rows_per_block;
  bool aligned;
};

// sum_c(g * h) of a pack.
template <class T>
__device__ __forceinline__ float product_sum(const Pack<T>& dy, const Pack<T>& x,
                                             const Pack<T>& gamma, float rstd) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float g = static_cast<float>(dy.at[i]) * static_cast<float>(gamma.at[i]);
    sum += g * (static_cast<float>(x.at[i]) * rstd);
  }
  return sum;
}

// dx of pack p of row r; adds dy * h to `dgamma`.
template <class T>
__device__ __forceinline__ void finish_pack(const BackwardArgs<T>& args, int64_t r, int64_t p,
                                            const Pack<T>& dy, const Pack<T>& x,
                                            const Pack<T>& gamma, float rstd, float mean,
                                            float (&dgamma)[kPack<T>]) {
  Pack<T> past{};
  if (args.dresidual.data != nullptr) {
    past = load_pack(args.dresidual[r], p, args.cols, args.aligned);
  }
  Pack<T> dx;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float d = static_cast<float>(dy.at[i]);
    const float h = static_cast<float>(x.at[i]) * rstd;
    dgamma[i] += d * h;
    float value = rstd * (d * static_cast<float>(gamma.at[i]) - h * mean);
    if (args.dresidual.data != nullptr) value += static_cast<float>(past.at[i]);
    dx.at[i] = T(value);
  }
  store_pack(args.dx[r], p, args.cols, args.aligned, dx);
}

// Adds the sums of the block's row groups, in their order, and writes the block's row of partials.
template <class T, int kPacks>
__device__ __forceinline__ void store_partials(const BackwardArgs<T>& args,
                                               float (&dgamma)[kPacks][kPack<T>]) {
  float* out = args.partials + int64_t{blockIdx.x} * args.cols;
  ZINC_SHARED(float, sums, [kWarpRowsPerBlock][kWarp][kPack<T>]);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t first = (threadIdx.x + k * int64_t{blockDim.x}) * kPack<T>;
    if (blockDim.y > 1) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) sums[threadIdx.y][threadIdx.x][i] = dgamma[k][i];
      __syncthreads();
      if (threadIdx.y != 0) continue;
      for (unsigned group = 1; group < blockDim.y; ++group) {
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) dgamma[k][i] += sums[group][threadIdx.x][i];
      }
    }
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (first + i < args.cols) out[first + i] = dgamma[k][i];
    }
  }
}

template <class T, int kPacks>
__global__ void __launch_bounds__(kMaxBlockThreads) backward_kernel(BackwardArgs<T> args) {
  const int64_t step = blockDim.x;
  const int64_t cols = args.cols;
  const int64_t begin = int64_t{blockIdx.x} * args.rows_per_block;
  const int64_t end =
      begin + args.rows_per_block < args.rows ? begin + args.rows_per_block : args.rows;
  float dgamma[kPacks][kPack<T>] = {};
  for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
    const float rstd = args.rstd[r];
    Pack<T> dy[kPacks], x[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      dy[k] = load_pack(args.dy[r], threadIdx.x + k * step, cols, args.aligned);
      x[k] = load_pack(args.x[r], threadIdx.x + k * step, cols, args.aligned);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t p = threadIdx.x + k * step;
      sum += product_sum(dy[k], x[k], load_pack(args.gamma, p, cols, args.aligned), rstd);
    }
    const float mean = row_sum(sum) / static_cast<float>(cols);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t p = threadIdx.x + k * step;
      finish_pack(args, r, p, dy[k], x[k], load_pack(args.gamma, p, cols, args.aligned), rstd, mean,
                  dgamma[k]);
    }
  }
  if (args.partials != nullptr) store_partials<T, kPacks>(args, dgamma);
}

// Rows that do not fit into registers: read twice; the block's sums are kept in the workspace.
template <class T>
__global__ void __launch_bounds__(kMaxBlockThreads) backward_long_kernel(BackwardArgs<T> args) {
  const int64_t packs = (args.cols + kPack<T> - 1) / kPack<T>;
  const int64_t begin = int64_t{blockIdx.x} * args.rows_per_block;
  const int64_t end =
      begin + args.rows_per_block < args.rows ? begin + args.rows_per_block : args.rows;
  float* partial = args.partials + int64_t{blockIdx.x} * args.cols;
  for (int64_t r = begin; r < end; ++r) {
    const float rstd = args.rstd[r];
    float sum = 0.0f;
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      sum += product_sum(load_pack(args.dy[r], p, args.cols, args.aligned),
                         load_pack(args.x[r], p, args.cols, args.aligned),
                         load_pack(args.gamma, p, args.cols, args.aligned), rstd);
    }
    const float mean = row_sum(sum) / static_cast<float>(args.cols);
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      float dgamma[kPack<T>] = {};
      finish_pack(args, r, p, load_pack(args.dy[r], p, args.cols, args.aligned),
                  load_pack(args.x[r], p, args.cols, args.aligned),
                  load_pack(args.gamma, p, args.cols, args.aligned), rstd, mean, dgamma);
      if (args.partials == nullptr) continue;
      for (int i = 0; i < kPack<T>; ++i) {
        const int64_t c = p * kPack<T> + i;
        if (c < args.cols) partial[c] = r == begin ? dgamma[i] : partial[c] + dgamma[i];
      }
    }
  }
}

template <class T>
Rows<const T> rows_of(const ConstView& view) {
  if (!view) return {};
  return {view.data_as<T>(), row_stride("rmsnorm", "rows", view)};
}
template <class T>
Rows<T> rows_of(const View& view) {
  return {view.data_as<T>(), row_stride("rmsnorm", "rows", view)};
}

bool can_read_packs(std::initializer_list<ConstView> views) {
  return std::all_of(views.begin(), views.end(), [](const ConstView& view) {
    return !view || is_aligned_for_packs(view, row_stride("rmsnorm", "rows", view));
  });
}

}  // namespace

void rmsnorm_forward(const RmsNormForward& args, StreamRef stream) {
  dispatch_device_float("rmsnorm_forward", args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    const RowShape shape = row_shape(cols, kPack<T>);
    const int64_t blocks = std::min(kMaxGrid, packs_of(rows, shape.rows_at_a_time));
    dispatch_packs(shape.packs_per_thread, [&]<int kPacks>() {
      launch(forward_kernel<T, kPacks>, dim3(static_cast<unsigned>(blocks)), shape.block, 0, stream,
             rows_of<T>(args.x), args.gamma.data_as<T>(), rows_of<T>(args.y),
             args.rstd ? args.rstd.data_as<float>() : nullptr, rows, cols,
             static_cast<float>(args.eps), can_read_packs({args.x, args.gamma, args.y}));
    });
  });
}

void rmsnorm_backward(const RmsNormBackward& args, StreamRef stream) {
  dispatch_device_float("rmsnorm_backward", args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    const RowShape shape = row_shape(cols, kPack<T>);
    const int64_t workspace_rows =
        norm_backward_workspace_bytes(rows, 1, DType::f32) / int64_t{sizeof(float)};
    const int64_t most = args.dgamma ? column_sum_blocks(rows, workspace_rows, 1)
                                     : std::min(kMaxGrid, packs_of(rows, shape.rows_at_a_time));
    const int64_t per_block = std::max<int64_t>(1, rows_per_block(rows, most));
    const int64_t blocks = packs_of(rows, per_block);
    float* partials = args.dgamma ? static_cast<float*>(args.workspace.data()) : nullptr;
    const BackwardArgs<T> kernel_args{
        rows_of<T>(args.dy),
        rows_of<T>(args.x),
        rows_of<T>(args.dresidual),
        args.gamma.data_as<T>(),
        args.rstd.data_as<float>(),
        rows_of<T>(args.dx),
        partials,
        rows,
        cols,
        per_block,
        can_read_packs({args.dy, args.x, args.dresidual, args.gamma, args.dx})};
    const dim3 grid(static_cast<unsigned>(blocks));
    dispatch_packs(shape.packs_per_thread, [&]<int kPacks>() {
      if (args.x.numel() == 0) return;
      if constexpr (kPacks == 0) {
        launch(backward_long_kernel<T>, grid, shape.block, 0, stream, kernel_args);
      } else {
        launch(backward_kernel<T, kPacks>, grid, shape.block, 0, stream, kernel_args);
      }
    });
    store_column_sums("rmsnorm_backward", partials, blocks, args.dgamma, args.accumulate_dgamma,
                      stream);
  });
}

}  // namespace zinc::kernels::cuda
