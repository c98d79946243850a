// LayerNorm forward: formulas in kernels/layernorm.h, rows as in norm_rows.h. The variance is
// summed from the differences to the mean, in a second pass over registers. Traffic: x in, y out.
#include "kernels/layernorm.h"

#include "kernels/checks.h"
#include "kernels/cuda/norm_rows.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int64_t kMaxGrid = 132 * 16;

template <class T>
struct ForwardArgs {
  Rows<const T> x;
  const T* gamma;
  const T* beta;  // null: 0
  Rows<T> y;
  float* mean;  // null: not wanted
  float* rstd;  // null: not wanted
  int64_t rows, cols;
  float eps;
  bool aligned;
};

// Elements beyond the row count neither for the sum nor for the squares.
template <class T>
__device__ __forceinline__ float sum_of(const Pack<T>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) sum += static_cast<float>(pack.at[i]);
  return sum;
}
template <class T>
__device__ __forceinline__ float squares_about(const Pack<T>& pack, int64_t p, int64_t cols,
                                               float mean) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float difference = p * kPack<T> + i < cols ? static_cast<float>(pack.at[i]) - mean : 0.0f;
    sum += difference * difference;
  }
  return sum;
}

template <class T>
__device__ __forceinline__ void store_normalised(const ForwardArgs<T>& args, int64_t r, int64_t p,
                                                 const Pack<T>& x, float mean, float rstd) {
  const Pack<T> gamma = load_pack(args.gamma, p, args.cols, args.aligned);
  Pack<T> beta{};
  if (args.beta != nullptr) beta = load_pack(args.beta, p, args.cols, args.aligned);
  Pack<T> y;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float h = (static_cast<float>(x.at[i]) - mean) * rstd;
    y.at[i] = T(h * static_cast<float>(gamma.at[i]) + static_cast<float>(beta.at[i]));
  }
  store_pack(args.y[r], p, args.cols, args.aligned, y);
}

template <class T, int kPacks>
__global__ void __launch_bounds__(kMaxBlockThreads) forward_kernel(ForwardArgs<T> args) {
  const int64_t step = blockDim.x;
  const int64_t packs = (args.cols + kPack<T> - 1) / kPack<T>;
  const auto n = static_cast<float>(args.cols);
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < args.rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    const T* x = args.x[r];
    Pack<T> held[kPacks == 0 ? 1 : kPacks];
    float sum = 0.0f;
    float squares = 0.0f;
    float mean = 0.0f;
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        sum += sum_of(load_pack(x, p, args.cols, args.aligned));
      }
      mean = row_sum(sum) / n;
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        squares += squares_about(load_pack(x, p, args.cols, args.aligned), p, args.cols, mean);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        held[k] = load_pack(x, threadIdx.x + k * step, args.cols, args.aligned);
      }
#pragma unroll
      for (int k = 0; k < kPacks; ++k) sum += sum_of(held[k]);
      mean = row_sum(sum) / n;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        squares += squares_about(held[k], threadIdx.x + k * step, args.cols, mean);
      }
    }
    const float rstd = 1.0f / sqrtf(row_sum(squares) / n + args.eps);
    if constexpr (kPacks == 0) {
      for (int64_t p = threadIdx.x; p < packs; p += step) {
        store_normalised(args, r, p, load_pack(x, p, args.cols, args.aligned), mean, rstd);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        store_normalised(args, r, threadIdx.x + k * step, held[k], mean, rstd);
      }
    }
    if (threadIdx.x == 0) {
      if (args.mean != nullptr) args.mean[r] = mean;
      if (args.rstd != nullptr) args.rstd[r] = rstd;
    }
  }
}

bool can_read_packs(std::initializer_list<ConstView> views) {
  return std::all_of(views.begin(), views.end(), [](const ConstView& view) {
    return !view || is_aligned_for_packs(view, row_stride("layernorm", "rows", view));
  });
}

}  // namespace

void layernorm_forward(const LayerNormForward& args, StreamRef stream) {
  dispatch_device_float("layernorm_forward", args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    const RowShape shape = row_shape(cols, kPack<T>);
    const int64_t blocks = std::min(kMaxGrid, packs_of(rows, shape.rows_at_a_time));
    const ForwardArgs<T> kernel_args{{args.x.data_as<T>(), row_stride("layernorm", "x", args.x)},
                                     args.gamma.data_as<T>(),
                                     args.beta ? args.beta.data_as<T>() : nullptr,
                                     {args.y.data_as<T>(), row_stride("layernorm", "y", args.y)},
                                     args.mean ? args.mean.data_as<float>() : nullptr,
                                     args.rstd ? args.rstd.data_as<float>() : nullptr,
                                     rows,
                                     cols,
                                     static_cast<float>(args.eps),
                                     can_read_packs({args.x, args.gamma, args.beta, args.y})};
    dispatch_packs(shape.packs_per_thread, [&]<int kPacks>() {
      launch(forward_kernel<T, kPacks>, dim3(static_cast<unsigned>(blocks)), shape.block, 0, stream,
             kernel_args);
    });
  });
}

}  // namespace zinc::kernels::cuda
