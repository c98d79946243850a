// kernels/cuda/norm_forward.h: the forward pass of LayerNorm and RMSNorm, with or without a
// residual: formulas in kernels/layernorm.h, rmsnorm.h and residual_norm.h, rows as in norm_rows.h.
// The variance is summed from the differences to the mean, in a second pass over registers.
// Traffic: x (and residual) in, y (and sum) out.
#pragma once

#include "kernels/cuda/norm_rows.h"
#include "kernels/cuda/special_function.h"

namespace zinc::kernels::cuda {

template <class T, class Aligned>
struct NormForwardArgs {
  Rows<const T> x;
  Rows<const T> residual;  // absent: no sum
  Rows<T> sum;             // x + residual, rounded; normalised in place of x
  const T* gamma;
  const T* beta;  // null: 0
  Rows<T> y;
  float* mean;  // null: not wanted
  float* rstd;  // null: not wanted
  int64_t rows, cols;
  float eps;
  Aligned aligned;
};

// Pack p of row r of the tensor that is normalised, at its first reading.
template <class T, class Aligned>
__device__ __forceinline__ Pack<T> first_load(const NormForwardArgs<T, Aligned>& args, int64_t r,
                                              int64_t p) {
  const Pack<T> x = load_pack(args.x[r], p, args.cols, args.aligned);
  if (args.residual.data == nullptr) return x;
  const Pack<T> residual = load_pack(args.residual[r], p, args.cols, args.aligned);
  float sum[kPack<T>];
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    sum[i] = static_cast<float>(x.at[i]) + static_cast<float>(residual.at[i]);
  }
  const Pack<T> rounded = rounded_pack<T>(sum);
  store_pack(args.sum[r], p, args.cols, args.aligned, rounded);
  return rounded;
}
// The same pack at a later reading, by the same thread.
template <class T, class Aligned>
__device__ __forceinline__ Pack<T> load_again(const NormForwardArgs<T, Aligned>& args, int64_t r,
                                              int64_t p) {
  const T* row = args.residual.data == nullptr ? args.x[r] : args.sum[r];
  return load_pack(row, p, args.cols, args.aligned);
}

// Elements beyond the row are 0.
template <class T>
__device__ __forceinline__ float sum_of(const Pack<T>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) sum += static_cast<float>(pack.at[i]);
  return sum;
}
// The sum of squared differences to the mean; elements beyond the row do not count.
template <class T, class Aligned>
__device__ __forceinline__ float squares_about(const Pack<T>& pack, int64_t p, int64_t cols,
                                               float mean, Aligned) {
  float sum = 0.0f;
  if constexpr (std::is_same_v<Aligned, WholePacks>) {
    if (p * kPack<T> >= cols) return sum;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const float difference = static_cast<float>(pack.at[i]) - mean;
      sum += difference * difference;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const float difference =
          p * kPack<T> + i < cols ? static_cast<float>(pack.at[i]) - mean : 0.0f;
      sum += difference * difference;
    }
  }
  return sum;
}

template <bool kLayer, class T, class Aligned>
__device__ __forceinline__ void store_normalised(const NormForwardArgs<T, Aligned>& args, int64_t r,
                                                 int64_t p, const Pack<T>& x, float mean,
                                                 float rstd) {
  const Pack<T> gamma = load_pack(args.gamma, p, args.cols, args.aligned);
  Pack<T> beta{};
  if (kLayer && args.beta != nullptr) beta = load_pack(args.beta, p, args.cols, args.aligned);
  float y[kPack<T>];
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float h = (static_cast<float>(x.at[i]) - mean) * rstd;
    const float scaled = h * static_cast<float>(gamma.at[i]);
    y[i] = kLayer ? scaled + static_cast<float>(beta.at[i]) : scaled;
  }
  store_pack(args.y[r], p, args.cols, args.aligned, rounded_pack<T>(y));
}

template <bool kLayer, class T, class Aligned, int kPacks>
__global__ void __launch_bounds__(kMaxBlockThreads)
    norm_forward_kernel(NormForwardArgs<T, Aligned> args) {
  const int64_t step = blockDim.x;
  const int64_t packs = (args.cols + kPack<T> - 1) / kPack<T>;
  const auto n = static_cast<float>(args.cols);
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < args.rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    Pack<T> held[kPacks == 0 ? 1 : kPacks];
    float sum = 0.0f;
    float squares = 0.0f;
    float mean = 0.0f;
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        const Pack<T> x = first_load(args, r, p);
        if constexpr (kLayer) {
          sum += sum_of(x);
        } else {
          squares += squares_about(x, p, args.cols, 0.0f, args.aligned);
        }
      }
      if constexpr (kLayer) {
        mean = row_sum(sum) / n;
        for (int64_t p = threadIdx.x; p < packs; p += step) {
          squares += squares_about(load_again(args, r, p), p, args.cols, mean, args.aligned);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) held[k] = first_load(args, r, threadIdx.x + k * step);
      if constexpr (kLayer) {
#pragma unroll
        for (int k = 0; k < kPacks; ++k) sum += sum_of(held[k]);
        mean = row_sum(sum) / n;
      }
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        squares += squares_about(held[k], threadIdx.x + k * step, args.cols, mean, args.aligned);
      }
    }
    const float rstd = 1.0f / sqrtf(row_sum(squares) / n + args.eps);
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        store_normalised<kLayer>(args, r, p, load_again(args, r, p), mean, rstd);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        store_normalised<kLayer>(args, r, threadIdx.x + k * step, held[k], mean, rstd);
      }
    }
    if (threadIdx.x == 0) {
      if (args.mean != nullptr) args.mean[r] = mean;
      if (args.rstd != nullptr) args.rstd[r] = rstd;
    }
  }
}

struct NormForward {
  const char* op;
  ConstView x, residual, gamma, beta;
  View sum, y, mean, rstd;
  double eps;
};

// At least one element.
template <bool kLayer>
void launch_norm_forward(const NormForward& args, StreamRef stream) {
  dispatch_device_float(args.op, args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    constexpr int kMostPacks = 4;
    const RowShape shape = row_shape(cols, kPack<T>, kMostPacks);
    const int64_t blocks = std::min(kMaxRowBlocks, packs_of(rows, shape.rows_at_a_time));
    const bool fits =
        can_read_packs({args.x, args.residual, args.sum, args.gamma, args.beta, args.y});
    dispatch_whole_packs(cols, kPack<T>, fits, [&]<class Aligned>(Aligned aligned) {
      const NormForwardArgs<T, Aligned> kernel_args{
          rows_of<T>(args.x),
          rows_of<T>(args.residual),
          rows_of<T>(args.sum),
          args.gamma.data_as<T>(),
          args.beta ? args.beta.data_as<T>() : nullptr,
          rows_of<T>(args.y),
          args.mean ? args.mean.data_as<float>() : nullptr,
          args.rstd ? args.rstd.data_as<float>() : nullptr,
          rows,
          cols,
          static_cast<float>(args.eps),
          aligned};
      dispatch_packs<kMostPacks>(shape.packs_per_thread, [&]<int kPacks>() {
        launch(norm_forward_kernel<kLayer, T, Aligned, kPacks>, dim3(static_cast<unsigned>(blocks)),
               shape.block, 0, stream, kernel_args);
      });
    });
  });
}

}  // namespace zinc::kernels::cuda
