// The first elements of rows in order: a block per row sorts keys of 64 bits, the element's order
// above its column, by bitonic merges in the workspace (K. Batcher, Sorting networks and their
// applications, 1968). log2(n)^2 / 2 passes over the keys, which lie in the second-level cache.
#include "kernels/sort.h"

#include <algorithm>
#include <bit>

#include "kernels/checks.h"
#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kSortThreads = 512;

// Rises with x, NaN last; 0 and -0 are one. Falls with x where `descending`.
__device__ __forceinline__ uint32_t order_of(float x, bool descending) {
  uint32_t bits = std::bit_cast<uint32_t>(x == 0.0f ? 0.0f : x);
  if (x != x) {
    bits = 0xffffffffu;
  } else {
    bits ^= (bits >> 31) != 0 ? 0xffffffffu : 0x80000000u;
  }
  return descending ? ~bits : bits;
}

template <class T>
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(const T* x, int64_t stride, int64_t rows, int64_t cols, int64_t padded,
                bool descending, uint64_t* workspace, T* values, int64_t* indices, int64_t k) {
  uint64_t* keys = workspace + int64_t{blockIdx.x} * padded;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = x + r * stride;
    for (int64_t i = threadIdx.x; i < padded; i += kSortThreads) {
      const uint64_t order =
          i < cols ? order_of(static_cast<float>(row[i]), descending) : 0xffffffffu;
      keys[i] = order << 32 | static_cast<uint64_t>(i);
    }
    __syncthreads();
    for (int64_t run = 2; run <= padded; run *= 2) {
      for (int64_t gap = run / 2; gap > 0; gap /= 2) {
        for (int64_t pair = threadIdx.x; pair < padded / 2; pair += kSortThreads) {
          const int64_t low = pair / gap * 2 * gap + pair % gap;
          const uint64_t a = keys[low];
          const uint64_t b = keys[low + gap];
          const bool rises = (low & run) == 0;
          if (rises == (b < a)) {
            keys[low] = b;
            keys[low + gap] = a;
          }
        }
        __syncthreads();
      }
    }
    for (int64_t i = threadIdx.x; i < k; i += kSortThreads) {
      const auto place = static_cast<int64_t>(keys[i] & 0xffffffffu);
      values[r * k + i] = row[place];
      indices[r * k + i] = place;
    }
    __syncthreads();  // before the next row's keys are written
  }
}

}  // namespace

void sort(const Sort& args, StreamRef stream) {
  const int64_t rows = args.x.dim(0);
  const int64_t cols = args.x.dim(1);
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(cols)));
  const int64_t blocks =
      std::min(rows, sort_workspace_bytes(rows, cols, DeviceKind::cuda) / (padded * 8));
  dispatch_device_float("sort", args.x.dtype(), [&]<class T>() {
    launch(sort_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kSortThreads), 0, stream,
           args.x.data_as<T>(), row_stride("sort", "x", args.x), rows, cols, padded,
           args.descending, static_cast<uint64_t*>(args.workspace.data()), args.values.data_as<T>(),
           args.indices.data_as<int64_t>(), args.values.dim(1));
  });
}

}  // namespace zinc::kernels::cuda
