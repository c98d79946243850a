// Running sums of rows: a block per row, which takes tiles of kTile elements one after the other. A
// thread adds its kCount elements, warps scan the threads' sums by shuffles, the first warp those
// of the warps; the sum of the tiles before is added last. Traffic: x in, y out.
#include "kernels/cumsum.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kCount = 8;
constexpr int kWarps = kMapThreads / kWarp;
constexpr int64_t kTile = int64_t{kMapThreads} * kCount;

// Sums over the lanes up to and with this one.
__device__ __forceinline__ float scan_warp(float sum, int lane) {
  for (int width = 1; width < kWarp; width *= 2) {
    const float before = __shfl_up_sync(kFullWarp, sum, static_cast<unsigned>(width));
    if (lane >= width) sum = before + sum;
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kMapThreads)
    cumsum_kernel(const T* x, T* y, int64_t rows, int64_t cols, bool reverse) {
  ZINC_SHARED(float, warps, [kWarps]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = x + r * cols;
    T* out = y + r * cols;
    float carried = 0.0f;
    for (int64_t tile = 0; tile < cols; tile += kTile) {
      float sum[kCount];
      const int64_t first = tile + int64_t{threadIdx.x} * kCount;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int64_t at = reverse ? cols - 1 - (first + i) : first + i;
        const float value = first + i < cols ? static_cast<float>(row[at]) : 0.0f;
        sum[i] = i == 0 ? value : sum[i - 1] + value;
      }
      const float through = scan_warp(sum[kCount - 1], lane);
      if (lane == kWarp - 1) warps[warp] = through;
      __syncthreads();
      float before = carried;
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) before += warps[w];
        carried += warps[w];
      }
      __syncthreads();  // before the next tile's are written
      // The sum of the lanes before; the sum over all lanes is not kept.
      const float of_lanes = __shfl_up_sync(kFullWarp, through, 1u);
      if (lane > 0) before += of_lanes;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int64_t at = reverse ? cols - 1 - (first + i) : first + i;
        if (first + i < cols) out[at] = T(before + sum[i]);
      }
    }
  }
}

}  // namespace

void cumsum(const Cumsum& args, StreamRef stream) {
  const int64_t rows = args.x.rows();
  const int64_t blocks = std::min(kMaxMapBlocks, rows);
  dispatch_device_float("cumsum", args.x.dtype(), [&]<class T>() {
    launch(cumsum_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
           args.x.data_as<T>(), args.y.data_as<T>(), rows, args.x.cols(), args.reverse);
  });
}

}  // namespace zinc::kernels::cuda
