// Ids are sorted by (row, place): tiles by counting in shared memory, then by merging runs
// pairwise, each key finding its own place by a binary search in the other run. Keys differ, so the
// order is total and nothing depends on a schedule. Then a warp per run of one row and 32 packs of
// columns adds in the order of the places. Traffic: ids and x in, named rows of y in and out, 16
// bytes of keys per id and merge.
#include "kernels/cuda/row_order.h"

#include <type_traits>

#include "kernels/cuda/indices.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTile = 256;
constexpr uint64_t kNoRow = 0xffffffffu;  // sorted behind all rows

__device__ __forceinline__ uint64_t row_of(uint64_t key) { return key >> 32; }
__device__ __forceinline__ int64_t place_of(uint64_t key) {
  return static_cast<int64_t>(key & 0xffffffffu);
}

// A thread per id, a block per tile: its place in the tile is the number of smaller keys.
__global__ void __launch_bounds__(kTile)
    sort_tiles_kernel(Indices ids, int64_t n, TableRows rows, int64_t ignored, uint64_t* keys) {
  ZINC_SHARED(uint64_t, tile, [kTile]);
  const int64_t base = int64_t{blockIdx.x} * kTile;
  const int64_t i = base + threadIdx.x;
  uint64_t key = ~uint64_t{0};
  if (i < n) {
    const int64_t id = ids[i];
    const uint64_t row = rows.has(id, i) && id != ignored ? static_cast<uint64_t>(id) : kNoRow;
    key = row << 32 | static_cast<uint64_t>(i);
  }
  tile[threadIdx.x] = key;
  __syncthreads();
  if (i >= n) return;
  int smaller = 0;
  const int count = static_cast<int>(n - base < kTile ? n - base : kTile);
  for (int k = 0; k < count; ++k) smaller += tile[k] < key ? 1 : 0;
  keys[base + smaller] = key;
}

__global__ void __launch_bounds__(kTile)
    merge_kernel(const uint64_t* from, uint64_t* to, int64_t n, int64_t width) {
  const int64_t i = int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (i >= n) return;
  const uint64_t key = from[i];
  const int64_t run = i / width * width;
  const int64_t pair = i / (2 * width) * (2 * width);
  const int64_t other = run == pair ? run + width : pair;
  int64_t low = other < n ? other : n;
  int64_t high = other + width < n ? other + width : n;
  const int64_t begin = low;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (from[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  to[pair + (i - run) + (low - begin)] = key;
}

template <class T, class Target>
__global__ void __launch_bounds__(kMapThreads)
    add_runs_kernel(const uint64_t* keys, int64_t n, const T* x, int64_t x_stride, Target* y,
                    int64_t y_stride, int64_t cols, bool accumulate, bool aligned) {
  constexpr int kCount = kPack < T >> kPack<Target> ? kPack<T> : kPack<Target>;
  const int64_t chunks = (cols + int64_t{kWarp} * kCount - 1) / (int64_t{kWarp} * kCount);
  const int64_t lane = threadIdx.x % kWarp;
  const int64_t step = int64_t{gridDim.x} * blockDim.x / kWarp;
  for (int64_t item = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp; item < n * chunks;
       item += step) {
    const int64_t k = item / chunks;
    const uint64_t row = row_of(keys[k]);
    if (row == kNoRow || (k > 0 && row_of(keys[k - 1]) == row)) continue;
    const int64_t first = ((item - k * chunks) * kWarp + lane) * kCount;
    if (first >= cols) continue;
    float sum[kCount] = {};
    for (int64_t m = k; m < n && row_of(keys[m]) == row; ++m) {
      float values[kCount];
      load_floats(x + place_of(keys[m]) * x_stride, first, cols, aligned, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] += values[i];
    }
    Target* out = y + static_cast<int64_t>(row) * y_stride;
    if (accumulate) {
      float before[kCount];
      load_floats(out, first, cols, aligned, before);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] = before[i] + sum[i];
    }
    store_floats(out, first, cols, aligned, sum);
  }
}

// The sorted keys, in one of the two halves of the workspace.
const uint64_t* sorted_keys(const RowAdding& args, int64_t n, StreamRef stream) {
  auto* from = static_cast<uint64_t*>(args.workspace.data());
  uint64_t* to = from + n;
  const dim3 blocks(static_cast<unsigned>(packs_of(n, kTile)));
  launch(sort_tiles_kernel, blocks, dim3(kTile), 0, stream, Indices(args.ids), n,
         TableRows(args.rows, args.op, "ids", stream), args.ignored_id, from);
  for (int64_t width = kTile; width < n; width *= 2) {
    launch(merge_kernel, blocks, dim3(kTile), 0, stream, from, to, n, width);
    std::swap(from, to);
  }
  return from;
}

}  // namespace

void add_rows(const RowAdding& args, StreamRef stream) {
  dispatch_device_float(args.op, args.x.dtype(), [&]<class T>() {
    const int64_t n = args.ids.numel();
    if (n == 0) return;
    const uint64_t* keys = sorted_keys(args, n, stream);
    dispatch_sum_target<T>(args.y.dtype(), [&]<class Target>() {
      constexpr int kCount = std::max(kPack<T>, kPack<Target>);
      const int64_t warps = n * packs_of(args.cols, kWarp * kCount);
      const int64_t blocks = std::min(kMaxMapBlocks, packs_of(warps * kWarp, kMapThreads));
      launch(add_runs_kernel<T, Target>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0,
             stream, keys, n, args.x.data_as<T>(), args.x_stride, args.y.data_as<Target>(),
             args.y_stride, args.cols, args.accumulate,
             is_aligned_for_packs(args.x, args.x_stride) &&
                 is_aligned_for_packs(args.y, args.y_stride));
    });
  });
}

}  // namespace zinc::kernels::cuda
