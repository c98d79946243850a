// The sum of several arrays over the tree of their indices: a thread takes 16 bytes of each array
// in turn; partial sums wait in registers, as bit l of the number of arrays taken so far says.
// Traffic: every array in, the sum out.
#include "kernels/tree_sum.h"

#include "kernels/checks.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

template <class T, class Target>
struct TreeSumArgs {
  const T* in;
  int64_t stride, count, n;
  Target* out;
  bool accumulate, aligned;
};

template <int kCount, class T, class Sum>
__device__ __forceinline__ void load(const T* from, int64_t first, int64_t n, bool aligned,
                                     Sum (&out)[kCount]) {
  if constexpr (sizeof(Sum) == sizeof(float)) {
    load_floats(from, first, n, aligned, out);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = first + i < n ? from[first + i] : Sum();
  }
}
template <int kCount, class T, class Sum>
__device__ __forceinline__ void store(T* to, int64_t first, int64_t n, bool aligned,
                                      const Sum (&values)[kCount]) {
  if constexpr (sizeof(Sum) == sizeof(float)) {
    store_floats(to, first, n, aligned, values);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < n) to[first + i] = values[i];
    }
  }
}

template <int kCount, class Sum>
__device__ __forceinline__ void add_left(const Sum (&left)[kCount], Sum (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] = left[i] + sum[i];
}

// Fewer than 2^kLevels arrays.
template <int kLevels, class T, class Target>
__global__ void __launch_bounds__(kMapThreads) tree_sum_kernel(TreeSumArgs<T, Target> args) {
  using Sum = AccumulatorOf<T>;
  constexpr int kCount = kPack < T >> kPack<Target> ? kPack<T> : kPack<Target>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < args.n;
       first += step) {
    Sum partial[kLevels][kCount];
    for (int64_t r = 0; r < args.count; ++r) {
      Sum sum[kCount];
      load(args.in + r * args.stride, first, args.n, args.aligned, sum);
      bool rises = true;
#pragma unroll
      for (int level = 0; level < kLevels; ++level) {
        if (rises && ((r >> level) & 1) != 0) {
          add_left(partial[level], sum);
        } else if (rises) {
#pragma unroll
          for (int i = 0; i < kCount; ++i) partial[level][i] = sum[i];
          rises = false;
        }
      }
    }
    Sum total[kCount] = {};
    bool found = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (((args.count >> level) & 1) == 0) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        total[i] = found ? partial[level][i] + total[i] : partial[level][i];
      }
      found = true;
    }
    if (args.accumulate) {
      Sum before[kCount];
      load(args.out, first, args.n, args.aligned, before);
      add_left(before, total);
    }
    store(args.out, first, args.n, args.aligned, total);
  }
}

template <class T, class Target>
void sum_arrays(const TreeSum& args, StreamRef stream) {
  constexpr int kCount = std::max(kPack<T>, kPack<Target>);
  const int64_t stride = row_stride("tree_sum", "in", args.in);
  const TreeSumArgs<T, Target> kernel_args{
      args.in.data_as<T>(),
      stride,
      args.in.dim(0),
      args.in.dim(1),
      args.out.data_as<Target>(),
      args.accumulate,
      is_aligned_for_packs(args.in, stride) && is_aligned_for_packs(args.out, 0)};
  const dim3 blocks(static_cast<unsigned>(
      std::min(kMaxMapBlocks, packs_of(packs_of(kernel_args.n, kCount), kMapThreads))));
  if (kernel_args.count < 16) {
    launch(tree_sum_kernel<4, T, Target>, blocks, dim3(kMapThreads), 0, stream, kernel_args);
  } else {
    launch(tree_sum_kernel<11, T, Target>, blocks, dim3(kMapThreads), 0, stream, kernel_args);
  }
}

}  // namespace

void tree_sum(const TreeSum& args, StreamRef stream) {
  if (args.in.dtype() == DType::f64) return sum_arrays<double, double>(args, stream);
  dispatch_device_float("tree_sum", args.in.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.out.dtype(),
                           [&]<class Target>() { sum_arrays<T, Target>(args, stream); });
  });
}

}  // namespace zinc::kernels::cuda
