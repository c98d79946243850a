// Matrix products in f32: what cuBLASLt does not take, and all products on the emulator. A block of
// 64 threads computes a tile of 64 x 64 from slices of 32 of k in shared memory, each thread 8 x 8
// of it; every element is the sum over k in order, so that bits depend on the values alone. Codes
// of 8 bits are decoded as they are read. Bytes moved: a read once per 64 columns, b once per 64
// rows; c once. The epilogue of a cuBLASLt result is a pass of its own, 16 bytes at a time; it
// reads and writes each byte once.
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_epilogue.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of a block
constexpr int kSlice = 32;  // elements of k
constexpr int kEach = 8;    // rows and columns of a thread
constexpr int kSide = kTile / kEach;
constexpr int kThreads = kSide * kSide;
constexpr int64_t kMaxBatches = 65535;  // batches of one launch; a block loops over more

// Element (i, j) of a product whose alpha op(A) op(B) is `sum`.
template <class T, class TC>
__device__ __forceinline__ void finish(const MatrixProduct& p, TC* c, const TC* addend, int64_t i,
                                       int64_t j, float sum) {
  if (p.beta != 0.0) {
    sum += static_cast<float>(p.beta) * static_cast<float>(addend[i * p.addend_stride + j]);
  }
  if (p.bias != nullptr) {
    sum += p.bias_dtype == DType::f32 ? static_cast<const float*>(p.bias)[j]
                                      : static_cast<float>(static_cast<const T*>(p.bias)[j]);
  }
  const TC z(sum);
  if (p.pre != nullptr) static_cast<TC*>(p.pre)[i * p.pre_stride + j] = z;
  const float x =
      p.x != nullptr ? static_cast<float>(static_cast<const TC*>(p.x)[i * p.x_stride + j]) : 0.0f;
  if (p.factor != nullptr) {
    const auto at = static_cast<float>(z);
    const auto u = static_cast<float>(static_cast<const TC*>(p.factor)[i * p.factor_stride + j]);
    c[i * p.ldc + j] = TC(of_input<TC>(p, at, x, u));
    static_cast<TC*>(p.factor_gradient)[i * p.factor_gradient_stride + j] =
        TC(of_factor<TC>(p, at, x));
    return;
  }
  c[i * p.ldc + j] = TC(activated(p, z, x));
}

// Copies rows [row, row + 64) and k [first, first + 32) of op(A) (or of op(B) transposed) into
// tile[k][row], zeros beyond the matrix. `k_is_row`: the stored rows run over k.
template <class T, class Read>
__device__ __forceinline__ void load_slice(float (&tile)[kSlice][kTile], const T* from,
                                           const Read& read, int64_t stride, bool k_is_row,
                                           int64_t row, int64_t rows, int64_t first, int64_t k,
                                           int thread) {
  const int64_t rows_here = rows - row < kTile ? rows - row : kTile;
  const int64_t k_here = k - first < kSlice ? k - first : kSlice;
  for (int e = thread; e < kSlice * kTile; e += kThreads) {
    // Neighbouring threads take neighbouring elements of a stored row.
    const int at = k_is_row ? e % kTile : e / kSlice;
    const int deep = k_is_row ? e / kTile : e % kSlice;
    float value = 0.0f;
    if (at < rows_here && deep < k_here) {
      value = read(k_is_row ? from[(first + deep) * stride + row + at]
                            : from[(row + at) * stride + first + deep]);
    }
    tile[deep][at] = value;
  }
}

struct AsStored {
  __device__ AsStored(Fp8, const float*) {}
  template <class T>
  __device__ __forceinline__ float operator()(T value) const {
    return static_cast<float>(value);
  }
};
struct FromCode {
  Fp8 format;
  float unscale;
  __device__ FromCode(Fp8 format, const float* unscale) : format(format), unscale(*unscale) {}
  __device__ __forceinline__ float operator()(uint8_t code) const {
    return fp8_value(format, code) * unscale;
  }
};

// Stored: T, or uint8_t, codes that stand for T.
template <class Stored, class T, class TC>
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
  using Read = std::conditional_t<std::is_same_v<Stored, T>, AsStored, FromCode>;
  const Read read_a(p.a_fp8, p.a_unscale), read_b(p.b_fp8, p.b_unscale);
  for (int64_t batch = blockIdx.z; batch < batches; batch += batch_step) {
    const auto* a = static_cast<const Stored*>(p.a) + p.offset(batch, p.a_step);
    const auto* b = static_cast<const Stored*>(p.b) + p.offset(batch, p.b_step);
    TC* c = static_cast<TC*>(p.c) + p.offset(batch, p.c_step);
    const TC* addend = static_cast<const TC*>(p.addend) + p.offset(batch, p.c_step);
    float sum[kEach][kEach] = {};
    for (int64_t first = 0; first < p.k; first += kSlice) {
      load_slice(a_tile, a, read_a, p.lda, p.transpose_a, row, p.m, first, p.k, thread);
      load_slice(b_tile, b, read_b, p.ldb, !p.transpose_b, column, p.n, first, p.k, thread);
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
        finish<T, TC>(p, c, addend, r, at, static_cast<float>(p.alpha) * sum[i][j]);
      }
    }
  }
}

// A pack of row i of alpha op(A) op(B), whose `parts` lie a matrix after the other, without gaps.
template <int kCount, class Aligned>
__device__ __forceinline__ void add_parts(const MatrixProduct& p, const float* product, int parts,
                                          int64_t i, int64_t first, Aligned aligned,
                                          float (&sum)[kCount]) {
  load_floats(product + i * p.n, first, p.n, aligned, sum);
  for (int part = 1; part < parts; ++part) {
    float more[kCount];
    load_floats(product + (part * p.m + i) * p.n, first, p.n, aligned, more);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] += more[e];
  }
}

template <class T, class TC, class Aligned>
__global__ void __launch_bounds__(kMapThreads)
    epilogue_kernel(MatrixProduct p, const float* product, int parts, int64_t num_sums,
                    Aligned aligned) {
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
      float sum[kCount];
      add_parts(p, product, parts, i, first, aligned, sum);
      z = rounded_sum<T, TC>(p, sum, i, first, aligned);
      store_pre_activation(p, z, i, first, aligned);
    } else {
      const TC* from =
          p.pre != nullptr ? static_cast<const TC*>(p.pre) + i * p.pre_stride : c + i * p.ldc;
      z = load_part<kCount>(from, first, p.n, aligned);
    }
    activate(p, z, i, first, aligned);
  }
  if (parts == 1 || p.sums == nullptr) return;
  // Sums over k of parts, behind the products' (Note [Split sums]).
  const float* sums = product + parts * p.m * p.n;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < num_sums; i += step) {
    float sum = sums[i];
    for (int part = 1; part < parts; ++part) sum += sums[part * num_sums + i];
    store_sum<T>(p, i, sum);
  }
}

// The epilogue's operands as one row, where they have no gaps and no bias: no index is divided.
MatrixProduct merged_rows(MatrixProduct p) {
  const auto is_whole = [&](const void* data, int64_t stride) {
    return data == nullptr || stride == p.n;
  };
  if (p.bias != nullptr || !is_whole(p.c, p.ldc) || !is_whole(p.pre, p.pre_stride) ||
      !is_whole(p.x, p.x_stride) || !is_whole(p.addend, p.addend_stride) ||
      !is_whole(p.factor, p.factor_stride) ||
      !is_whole(p.factor_gradient, p.factor_gradient_stride)) {
    return p;
  }
  p.n = p.ldc = p.addend_stride = p.pre_stride = p.x_stride = p.factor_stride =
      p.factor_gradient_stride = p.m * p.n;
  p.m = 1;
  return p;
}

bool is_aligned_for_epilogue(const MatrixProduct& p, const float* product) {
  const auto fits = [](const void* data, int64_t stride, DType dtype) {
    return data == nullptr ||
           (reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * size_of(dtype) % 16 == 0);
  };
  return fits(p.c, p.ldc, p.c_dtype) && fits(p.addend, p.addend_stride, p.c_dtype) &&
         fits(p.pre, p.pre_stride, p.c_dtype) && fits(p.x, p.x_stride, p.c_dtype) &&
         fits(p.factor, p.factor_stride, p.c_dtype) &&
         fits(p.factor_gradient, p.factor_gradient_stride, p.c_dtype) &&
         fits(p.bias, 0, p.bias_dtype) && fits(product, p.n, DType::f32);
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
  const auto multiply = [&]<class Stored, class T, class TC>() {
    launch(product_kernel<Stored, T, TC>, grid, dim3(kThreads), 0, stream, p, batches, tiles_n);
  };
  if (p.a_fp8 != Fp8::none) {
    if (p.c_dtype == DType::f32) return multiply.template operator()<uint8_t, bf16, float>();
    return multiply.template operator()<uint8_t, bf16, bf16>();
  }
  dispatch_product(p, [&]<class T, class TC>() { multiply.template operator()<T, T, TC>(); });
}

void run_epilogue(const MatrixProduct& product_of, const float* product, int parts,
                  StreamRef stream) {
  const MatrixProduct p = merged_rows(product_of);
  dispatch_product(p, [&]<class T, class TC>() {
    const int64_t items = p.m * packs_of(p.n, kPack<TC>);
    const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
    dispatch_whole_packs(
        p.n, kPack<TC>, is_aligned_for_epilogue(p, product), [&]<class Aligned>(Aligned aligned) {
          launch(epilogue_kernel<T, TC, Aligned>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kMapThreads), 0, stream, p, product, parts, product_of.num_sums(), aligned);
        });
  });
}

}  // namespace zinc::kernels::cuda
