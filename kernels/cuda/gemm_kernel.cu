// Matrix products in f32: what cuBLASLt does not take, and all products on the emulator. A block of
// 64 threads computes a tile of 64 x 64 from slices of 32 of k in shared memory, each thread 8 x 8
// of it; every element is the sum over k in order, so that bits depend on the values alone. Bytes
// moved: a read once per 64 columns, b once per 64 rows; c once. What an epilogue does to the
// result of cuBLASLt is a pass of its own, 16 bytes at a time: what it reads and writes once.
#include "core/error.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of a block
constexpr int kSlice = 32;  // of k
constexpr int kEach = 8;    // rows and columns of a thread
constexpr int kSide = kTile / kEach;
constexpr int kThreads = kSide * kSide;
constexpr int64_t kMaxBatches = 65535;  // of one launch; a block goes on with more

template <class T>
__device__ __forceinline__ float value_of(Activation kind, float z) {
  switch (kind) {
    case Activation::gelu_tanh:
      return GeluTanh<T>::value(z);
    case Activation::gelu_erf:
      return GeluErf::value(z);
    case Activation::silu:
      return Silu<T>::value(z);
    case Activation::none:
      break;
  }
  return z;
}

template <class T>
__device__ __forceinline__ float slope_of(Activation kind, float x) {
  switch (kind) {
    case Activation::gelu_tanh:
      return GeluTanh<T>::slope(x);
    case Activation::gelu_erf:
      return GeluErf::slope(x);
    case Activation::silu:
      return Silu<T>::slope(x);
    case Activation::none:
      break;
  }
  return 1.0f;
}

// Of z, rounded: Note [Rounding of the pre-activation] in kernels/gemm.h. `x`: of activation_input.
template <class TC>
__device__ __forceinline__ float activated(const MatrixProduct& p, TC z, TC x) {
  const auto value = static_cast<float>(z);
  if (p.x != nullptr) return value * slope_of<TC>(p.activation, static_cast<float>(x));
  return value_of<TC>(p.activation, value);
}

// Element (i, j) of a product whose alpha op(A) op(B) is `sum`.
template <class T, class TC>
__device__ __forceinline__ void finish(const MatrixProduct& p, TC* c, int64_t i, int64_t j,
                                       float sum) {
  if (p.beta != 0.0) {
    sum += static_cast<float>(p.beta) * static_cast<float>(c[i * p.ldc + j]);
  }
  if (p.bias != nullptr) {
    sum += p.bias_dtype == DType::f32 ? static_cast<const float*>(p.bias)[j]
                                      : static_cast<float>(static_cast<const T*>(p.bias)[j]);
  }
  const TC z(sum);
  if (p.pre != nullptr) static_cast<TC*>(p.pre)[i * p.pre_stride + j] = z;
  const TC x = p.x != nullptr ? static_cast<const TC*>(p.x)[i * p.x_stride + j] : TC();
  c[i * p.ldc + j] = TC(activated(p, z, x));
}

// Copies rows [row, row + 64) and k [first, first + 32) of op(A) (or of op(B) transposed) into
// tile[k][row], zeros beyond the matrix. `k_is_row`: the stored rows run over k.
template <class T>
__device__ __forceinline__ void load_slice(float (&tile)[kSlice][kTile], const T* from,
                                           int64_t stride, bool k_is_row, int64_t row, int64_t rows,
                                           int64_t first, int64_t k, int thread) {
  const int64_t rows_here = rows - row < kTile ? rows - row : kTile;
  const int64_t k_here = k - first < kSlice ? k - first : kSlice;
  for (int e = thread; e < kSlice * kTile; e += kThreads) {
    // Neighbouring threads take neighbouring elements of a stored row.
    const int at = k_is_row ? e % kTile : e / kSlice;
    const int deep = k_is_row ? e / kTile : e % kSlice;
    float value = 0.0f;
    if (at < rows_here && deep < k_here) {
      value = static_cast<float>(k_is_row ? from[(first + deep) * stride + row + at]
                                          : from[(row + at) * stride + first + deep]);
    }
    tile[deep][at] = value;
  }
}

template <class T, class TC>
__global__ void __launch_bounds__(kThreads)
    product_kernel(MatrixProduct p, int64_t batches, int64_t tiles_n) {
  ZINC_SHARED(float, a_tile, [kSlice][kTile]);
  ZINC_SHARED(float, b_tile, [kSlice][kTile]);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = int64_t{blockIdx.x} / tiles_n * kTile;
  const int64_t column = int64_t{blockIdx.x} % tiles_n * kTile;
  const int my_row = thread / kSide * kEach;
  const int my_column = thread % kSide * kEach;
  const int64_t batch_step = gridDim.z;
  for (int64_t batch = blockIdx.z; batch < batches; batch += batch_step) {
    const T* a = static_cast<const T*>(p.a) + p.offset(batch, p.a_step);
    const T* b = static_cast<const T*>(p.b) + p.offset(batch, p.b_step);
    TC* c = static_cast<TC*>(p.c) + p.offset(batch, p.c_step);
    float sum[kEach][kEach] = {};
    for (int64_t first = 0; first < p.k; first += kSlice) {
      load_slice(a_tile, a, p.lda, p.transpose_a, row, p.m, first, p.k, thread);
      load_slice(b_tile, b, p.ldb, !p.transpose_b, column, p.n, first, p.k, thread);
      __syncthreads();
      const int deep = p.k - first < kSlice ? static_cast<int>(p.k - first) : kSlice;
      for (int d = 0; d < deep; ++d) {
        float left[kEach], right[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          left[i] = a_tile[d][my_row + i];
          right[i] = b_tile[d][my_column + i];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sum[i][j] += left[i] * right[j];
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        const int64_t r = row + my_row + i;
        const int64_t at = column + my_column + j;
        if (r >= p.m || at >= p.n) continue;
        finish<T, TC>(p, c, r, at, static_cast<float>(p.alpha) * sum[i][j]);
      }
    }
  }
}

// z of a pack of row i: alpha op(A) op(B), of which `product` holds a row after the other, with the
// rest of the sum.
template <class T, class TC, int kCount, class Aligned>
__device__ __forceinline__ Pack<TC, kCount> sum_of_parts(const MatrixProduct& p,
                                                         const float* product, int64_t i,
                                                         int64_t first, Aligned aligned) {
  float sum[kCount];
  load_floats(product + i * p.n, first, p.n, aligned, sum);
  if (p.beta != 0.0) {
    float before[kCount];
    load_floats(static_cast<const TC*>(p.c) + i * p.ldc, first, p.n, aligned, before);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] += static_cast<float>(p.beta) * before[e];
  }
  if (p.bias != nullptr) {
    float bias[kCount];
    if (p.bias_dtype == DType::f32) {
      load_floats(static_cast<const float*>(p.bias), first, p.n, aligned, bias);
    } else {
      load_floats(static_cast<const T*>(p.bias), first, p.n, aligned, bias);
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] += bias[e];
  }
  Pack<TC, kCount> z;
#pragma unroll
  for (int e = 0; e < kCount; ++e) z.at[e] = TC(sum[e]);
  if (p.pre != nullptr) {
    store_part(static_cast<TC*>(p.pre) + i * p.pre_stride, first, p.n, aligned, z);
  }
  return z;
}

template <class T, class TC, class Aligned>
__global__ void __launch_bounds__(kMapThreads)
    epilogue_kernel(MatrixProduct p, const float* product, Aligned aligned) {
  constexpr int kCount = kPack<TC>;
  TC* c = static_cast<TC*>(p.c);
  const int64_t per_row = (p.n + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < p.m * per_row;
       item += step) {
    const int64_t i = p.m == 1 ? 0 : item / per_row;
    const int64_t first = (item - i * per_row) * kCount;
    Pack<TC, kCount> z;
    if (product != nullptr) {
      z = sum_of_parts<T, TC, kCount>(p, product, i, first, aligned);
    } else {
      const TC* from =
          p.pre != nullptr ? static_cast<const TC*>(p.pre) + i * p.pre_stride : c + i * p.ldc;
      z = load_part<kCount>(from, first, p.n, aligned);
    }
    Pack<TC, kCount> x{};
    float values[kCount];
    if (p.x != nullptr) {
      x = load_part<kCount>(static_cast<const TC*>(p.x) + i * p.x_stride, first, p.n, aligned);
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) values[e] = activated(p, z.at[e], x.at[e]);
    store_rounded(c + i * p.ldc, first, p.n, aligned, values);
  }
}

// The epilogue's operands as one row, where they have no gaps and no bias: no index is divided.
MatrixProduct merged_rows(MatrixProduct p) {
  const auto is_whole = [&](const void* data, int64_t stride) {
    return data == nullptr || stride == p.n;
  };
  if (p.bias != nullptr || !is_whole(p.c, p.ldc) || !is_whole(p.pre, p.pre_stride) ||
      !is_whole(p.x, p.x_stride)) {
    return p;
  }
  p.n = p.ldc = p.pre_stride = p.x_stride = p.m * p.n;
  p.m = 1;
  return p;
}

bool is_aligned_for_epilogue(const MatrixProduct& p, const float* product) {
  const auto fits = [](const void* data, int64_t stride, DType dtype) {
    return data == nullptr ||
           (reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * size_of(dtype) % 16 == 0);
  };
  return fits(p.c, p.ldc, p.c_dtype) && fits(p.pre, p.pre_stride, p.c_dtype) &&
         fits(p.x, p.x_stride, p.c_dtype) && fits(p.bias, 0, p.bias_dtype) &&
         fits(product, p.n, DType::f32);
}

// Calls body.operator()<T, TC>() for the dtypes of a and c.
template <class Body>
void dispatch_product(const MatrixProduct& p, Body&& body) {
  dispatch_device_float("gemm", p.dtype, [&]<class T>() {
    if (p.c_dtype == DType::f32) {
      body.template operator()<T, float>();
    } else {
      body.template operator()<T, T>();
    }
  });
}

}  // namespace

void run_own_product(const MatrixProduct& p, StreamRef stream) {
  const int64_t tiles_m = (p.m + kTile - 1) / kTile;
  const int64_t tiles_n = (p.n + kTile - 1) / kTile;
  require(tiles_m * tiles_n <= 0x7fffffff, "gemm: a product of ", p.m, " x ", p.n,
          " is too large for one launch");
  const int64_t batches = p.batch();
  const dim3 grid(static_cast<unsigned>(tiles_m * tiles_n), 1,
                  static_cast<unsigned>(batches < kMaxBatches ? batches : kMaxBatches));
  dispatch_product(p, [&]<class T, class TC>() {
    launch(product_kernel<T, TC>, grid, dim3(kThreads), 0, stream, p, batches, tiles_n);
  });
}

void run_epilogue(const MatrixProduct& product_of, const float* product, StreamRef stream) {
  const MatrixProduct p = merged_rows(product_of);
  dispatch_product(p, [&]<class T, class TC>() {
    const int64_t items = p.m * packs_of(p.n, kPack<TC>);
    const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
    dispatch_whole_packs(
        p.n, kPack<TC>, is_aligned_for_epilogue(p, product), [&]<class Aligned>(Aligned aligned) {
          launch(epilogue_kernel<T, TC, Aligned>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kMapThreads), 0, stream, p, product, aligned);
        });
  });
}

}  // namespace zinc::kernels::cuda
