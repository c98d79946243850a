// Chunk sums of squares in the order that kernels/finite_norm.h states, and the first element that
// is not finite, in one pass. A half warp takes a chunk of 1024 elements: its thread l is lane l of
// the 16, so that the bits are the CPU's; a pass over the chunk reads 16 consecutive elements at a
// time. Bytes moved: x in, 8 bytes per chunk out.
#include "kernels/finite_norm.h"

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kLanes = 16;
constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 132 * 32;
constexpr long long kNone = 0x7fffffffffffffffll;

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) < INFINITY; }

__global__ void begin_kernel(long long* first_nonfinite) { *first_nonfinite = kNone; }
__global__ void end_kernel(long long* first_nonfinite) {
  if (*first_nonfinite == kNone) *first_nonfinite = -1;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    chunk_kernel(const T* x, int64_t n, int64_t chunks, double* sums, long long* first_nonfinite) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t groups = int64_t{gridDim.x} * (blockDim.x / kLanes);
  const int64_t rounds =
      (chunks + groups - 1) / groups;  // equal for all: shuffles take whole warps
  int64_t chunk = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
  for (int64_t round = 0; round < rounds; ++round, chunk += groups) {
    const int64_t begin = chunk * kNormChunk;
    const int64_t end = begin + kNormChunk < n ? begin + kNormChunk : n;
    double sum = 0.0;
    long long bad = kNone;
#pragma unroll 8
    for (int64_t i = begin + lane; i < end; i += kLanes) {
      const float value = static_cast<float>(x[i]);
      sum += double{value} * double{value};
      if (!is_finite(value) && bad == kNone) bad = i;
    }
    // Lane l takes l + 8, l + 4, l + 2, l + 1.
#pragma unroll
    for (unsigned width = kLanes / 2; width > 0; width /= 2) {
      sum += __shfl_down_sync(kFullWarp, sum, width, kLanes);
    }
    if (bad != kNone) atomicMin(first_nonfinite, bad);
    if (lane == 0 && chunk < chunks) sums[chunk] = sum;
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
      constexpr int64_t kPerBlock = kThreads / kLanes;
      const int64_t blocks = std::min(kMaxBlocks, (chunks + kPerBlock - 1) / kPerBlock);
      launch(chunk_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream,
             args.x.data_as<T>(), args.x.numel(), chunks, args.chunk_sums.data_as<double>(), first);
    }
    launch(end_kernel, dim3(1), dim3(1), 0, stream, first);
  });
}

}  // namespace zinc::kernels::cuda
