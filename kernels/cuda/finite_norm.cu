// Chunk sums of squares in the order that kernels/finite_norm.h states, and the first element that
// is not finite, in one pass. A chunk of 1024 elements is 64 rows of 16 lanes; a thread takes 16
// bytes of every row, whose lanes it holds, so that the bits are the CPU's. Bytes moved: x in, 8
// bytes per chunk out.
#include "kernels/finite_norm.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kLanes = 16;
constexpr int kThreads = 256;
// Threads of a chunk: a part of a warp, as kLanes is of kPack<T>.
template <class T>
inline constexpr int kParts = kLanes / kPack<T>;
constexpr int64_t kMaxBlocks = 132 * 32;
constexpr long long kNone = 0x7fffffffffffffffll;

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) < INFINITY; }

__global__ void begin_kernel(long long* first_nonfinite) { *first_nonfinite = kNone; }
__global__ void end_kernel(long long* first_nonfinite) {
  if (*first_nonfinite == kNone) *first_nonfinite = -1;
}

// The lanes' sums as a binary tree, the far half first: lanes of other threads, then those of this.
template <class T>
__device__ __forceinline__ double sum_of_lanes(double (&sums)[kPack<T>]) {
#pragma unroll
  for (int width = kLanes / 2; width >= kPack<T>; width /= 2) {
    const auto parts = static_cast<unsigned>(width / kPack<T>);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      sums[i] += __shfl_down_sync(kFullWarp, sums[i], parts, kParts<T>);
    }
  }
#pragma unroll
  for (int width = kPack<T> / 2; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

template <class T, class Aligned>
__global__ void __launch_bounds__(kThreads)
    chunk_kernel(const T* x, int64_t n, Aligned aligned, int64_t chunks, double* sums,
                 long long* first_nonfinite) {
  constexpr int kCount = kPack<T>;
  const int part = static_cast<int>(threadIdx.x) % kParts<T>;
  const int64_t groups = int64_t{gridDim.x} * (blockDim.x / kParts<T>);
  const int64_t rounds =
      (chunks + groups - 1) / groups;  // equal for all: shuffles take whole warps
  int64_t chunk = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kParts<T>;
  for (int64_t round = 0; round < rounds; ++round, chunk += groups) {
    const int64_t begin = chunk * kNormChunk;
    const int64_t end = begin + kNormChunk < n ? begin + kNormChunk : n;
    double lanes[kCount] = {};
    int bad = kNormChunk;  // in the chunk; a select, so that no branch parts the loads
#pragma unroll 8
    for (int64_t first = begin + part * kCount; first < end; first += kLanes) {
      float values[kCount];  // 0 beyond the end, which changes no sum
      load_floats(x, first, n, aligned, values);
      const auto place = static_cast<int>(first - begin);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        lanes[i] += double{values[i]} * double{values[i]};
        bad = is_finite(values[i]) || bad < place + i ? bad : place + i;
      }
    }
    const double sum = sum_of_lanes<T>(lanes);
    if (bad < kNormChunk) atomicMin(first_nonfinite, begin + bad);
    if (part == 0 && chunk < chunks) sums[chunk] = sum;
  }
}

}  // namespace

void finite_norm(const FiniteNorm& args, StreamRef stream) {
  dispatch_device_float("finite_norm", args.x.dtype(), [&]<class T>() {
    static_assert(sizeof(long long) == sizeof(int64_t));
    auto* first = reinterpret_cast<long long*>(args.first_nonfinite.data_as<int64_t>());
    const int64_t chunks = args.chunk_sums.numel();
    launch(begin_kernel, dim3(1), dim3(1), 0, stream, first);
    if (chunks > 0) {
      constexpr int64_t kPerBlock = kThreads / kParts<T>;
      const int64_t blocks = std::min(kMaxBlocks, (chunks + kPerBlock - 1) / kPerBlock);
      const bool aligned = is_aligned_for_packs(args.x, 0);
      dispatch_whole_packs(args.x.numel(), kPack<T>, aligned, [&]<class Aligned>(Aligned fits) {
        launch(chunk_kernel<T, Aligned>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
               stream, args.x.data_as<T>(), args.x.numel(), fits, chunks,
               args.chunk_sums.data_as<double>(), first);
      });
    }
    launch(end_kernel, dim3(1), dim3(1), 0, stream, first);
  });
}

}  // namespace zinc::kernels::cuda
