// Ids are sorted by (row, place): tiles by counting in shared memory, then by merging runs
// pairwise, each key finding its own place by a binary search in the other run. Keys differ, so the
// order is total and nothing depends on a schedule. Then a warp per run of one row and 32 packs of
// columns adds in the order of the places, a block per longer run: Note [Sums of rows] in
// kernels/embedding.h. Traffic: ids and x in, named rows of y in and out, 16 bytes of keys per id
// and merge.
#include "kernels/cuda/row_order.h"

#include <type_traits>

#include "kernels/cuda/indices.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/sums.h"
#include "kernels/embedding.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTile = 256;
constexpr uint64_t kNoRow = 0xffffffffu;  // sorted behind all rows

__device__ __forceinline__ uint64_t row_of(uint64_t key) { return key >> 32; }
__device__ __forceinline__ int64_t place_of(uint64_t key) {
  return static_cast<int64_t>(key & 0xffffffffu);
}

// The first of keys [low, high) that is not less than `key`; `high` for none.
__device__ __forceinline__ int64_t find_key(const uint64_t* keys, int64_t low, int64_t high,
                                            uint64_t key) {
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A thread per id, a block per tile: its place in the tile is the number of smaller keys.
__global__ void __launch_bounds__(kTile)
    sort_tiles_kernel(Indices ids, int64_t n, TableRows rows, int64_t ignored, bool allows_absent,
                      uint64_t* keys) {
  ZINC_SHARED(uint64_t, tile, [kTile]);
  const int64_t base = int64_t{blockIdx.x} * kTile;
  const int64_t i = base + threadIdx.x;
  uint64_t key = ~uint64_t{0};
  if (i < n) {
    const int64_t id = ids[i];
    const bool is_absent = allows_absent && id == kAbsentRow;
    const bool adds = !is_absent && rows.has(id, i) && id != ignored;
    const uint64_t row = adds ? static_cast<uint64_t>(id) : kNoRow;
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
  const int64_t begin = other < n ? other : n;
  const int64_t end = other + width < n ? other + width : n;
  to[pair + (i - run) + (find_key(from, begin, end, key) - begin)] = key;
}

// Sorted keys, and the rows that are added by them.
template <class T, class Target>
struct Runs {
  static constexpr int kCount = kPack < T >> kPack<Target> ? kPack<T> : kPack<Target>;
  static constexpr int64_t kColumns = int64_t{kWarp} * kCount;  // columns of a warp

  const uint64_t* keys;
  int64_t n;
  const T* x;
  int64_t x_stride;
  Target* y;
  int64_t y_stride;
  int64_t cols;
  bool accumulate, aligned;

  __device__ bool has_row(int64_t k, uint64_t row) const {
    return k >= 0 && k < n && row_of(keys[k]) == row;
  }
  // The rows of keys [begin, end) in their order, from column `first` < cols on.
  __device__ __forceinline__ void sum_of(int64_t begin, int64_t end, int64_t first,
                                         float (&sum)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] = 0.0f;
#pragma unroll 4
    for (int64_t m = begin; m < end; ++m) {
      float values[kCount];
      load_floats(x + place_of(keys[m]) * x_stride, first, cols, aligned, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] += values[i];
    }
  }
};

// Runs of up to kRowsOfASum.
template <class T, class Target>
__global__ void __launch_bounds__(kMapThreads) add_runs_kernel(Runs<T, Target> runs) {
  constexpr int kCount = Runs<T, Target>::kCount;
  const int64_t chunks = (runs.cols + Runs<T, Target>::kColumns - 1) / Runs<T, Target>::kColumns;
  const int64_t lane = threadIdx.x % kWarp;
  const int64_t step = int64_t{gridDim.x} * blockDim.x / kWarp;
  for (int64_t item = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
       item < runs.n * chunks; item += step) {
    const int64_t k = item / chunks;
    const uint64_t row = row_of(runs.keys[k]);
    if (row == kNoRow || runs.has_row(k - 1, row) || runs.has_row(k + kRowsOfASum, row)) continue;
    const int64_t first = ((item - k * chunks) * kWarp + lane) * kCount;
    if (first >= runs.cols) continue;
    int64_t end = k + 1;
    while (runs.has_row(end, row)) ++end;
    float sum[kCount];
    runs.sum_of(k, end, first, sum);
    Target* out = runs.y + static_cast<int64_t>(row) * runs.y_stride;
    if (runs.accumulate) {
      float before[kCount];
      load_floats(out, first, runs.cols, runs.aligned, before);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] = before[i] + sum[i];
    }
    store_floats(out, first, runs.cols, runs.aligned, sum);
  }
}

constexpr int kRunThreads = 512;
constexpr int kRunWarps = kRunThreads / kWarp;

// Longer runs: a block per kRowsOfASum keys and a warp's columns, of which the one with the first
// such key of a run takes it, a warp per sum.
template <class T, class Target>
__global__ void __launch_bounds__(kRunThreads) add_long_runs_kernel(Runs<T, Target> runs) {
  constexpr int kCount = Runs<T, Target>::kCount;
  constexpr int kColumns = static_cast<int>(Runs<T, Target>::kColumns);
  static_assert(kColumns <= kRunThreads);
  ZINC_SHARED(float, sums, [kRunWarps][kColumns]);
  const int64_t k = int64_t{blockIdx.x} * kRowsOfASum;
  const uint64_t row = row_of(runs.keys[k]);
  if (row == kNoRow || runs.has_row(k - kRowsOfASum, row)) return;
  const int64_t begin =
      find_key(runs.keys, k < kRowsOfASum ? 0 : k - kRowsOfASum + 1, k, row << 32);
  if (!runs.has_row(begin + kRowsOfASum, row)) return;
  const int64_t end = find_key(runs.keys, begin + kRowsOfASum + 1, runs.n, (row + 1) << 32);
  const int tid = static_cast<int>(threadIdx.x);
  const int64_t first_column = int64_t{blockIdx.y} * kColumns;
  const int64_t first = first_column + tid % kWarp * kCount;
  float total = 0.0f;  // sum of column first_column + tid
  for (int64_t round = begin; round < end; round += kRunWarps * kRowsOfASum) {
    const int64_t mine = round + tid / kWarp * kRowsOfASum;
    if (mine < end && first < runs.cols) {
      float sum[kCount];
      runs.sum_of(mine, mine + kRowsOfASum < end ? mine + kRowsOfASum : end, first, sum);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[tid / kWarp][tid % kWarp * kCount + i] = sum[i];
    }
    __syncthreads();
    if (tid < kColumns && first_column + tid < runs.cols) {
      const int64_t left = (end - round + kRowsOfASum - 1) / kRowsOfASum;
      for (int warp = 0; warp < kRunWarps && warp < left; ++warp) total += sums[warp][tid];
    }
    __syncthreads();
  }
  if (tid >= kColumns || first_column + tid >= runs.cols) return;
  Target& out = runs.y[static_cast<int64_t>(row) * runs.y_stride + first_column + tid];
  out = Target(runs.accumulate ? static_cast<float>(out) + total : total);
}

// The sorted keys, in one of the two halves of the workspace.
const uint64_t* sorted_keys(const RowAdding& args, int64_t n, StreamRef stream) {
  auto* from = static_cast<uint64_t*>(args.workspace.data());
  uint64_t* to = from + n;
  const dim3 blocks(static_cast<unsigned>(packs_of(n, kTile)));
  launch(sort_tiles_kernel, blocks, dim3(kTile), 0, stream, Indices(args.ids), n,
         TableRows(args.rows, args.op, "ids", stream), args.ignored_id, args.allows_absent, from);
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
      const Runs<T, Target> runs{.keys = keys,
                                 .n = n,
                                 .x = args.x.data_as<T>(),
                                 .x_stride = args.x_stride,
                                 .y = args.y.data_as<Target>(),
                                 .y_stride = args.y_stride,
                                 .cols = args.cols,
                                 .accumulate = args.accumulate,
                                 .aligned = is_aligned_for_packs(args.x, args.x_stride) &&
                                            is_aligned_for_packs(args.y, args.y_stride)};
      const int64_t chunks = packs_of(args.cols, runs.kColumns);
      const int64_t blocks = std::min(kMaxMapBlocks, packs_of(n * chunks * kWarp, kMapThreads));
      launch(add_runs_kernel<T, Target>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0,
             stream, runs);
      if (n <= kRowsOfASum) return;
      launch(add_long_runs_kernel<T, Target>,
             dim3(static_cast<unsigned>(packs_of(n, kRowsOfASum)), static_cast<unsigned>(chunks)),
             dim3(kRunThreads), 0, stream, runs);
    });
  });
}

}  // namespace zinc::kernels::cuda
