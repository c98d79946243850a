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

template <int kCount>
__device__ __forceinline__ void add_left(const float (&left)[kCount], float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] = left[i] + sum[i];
}

// Fewer than 2^kLevels arrays.
template <int kLevels, class T, class Target>
__global__ void __launch_bounds__(kMapThreads) tree_sum_kernel(TreeSumArgs<T, Target> args) {
  constexpr int kCount = kPack < T >> kPack<Target> ? kPack<T> : kPack<Target>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < args.n;
       first += step) {
    float partial[kLevels][kCount];
    for (int64_t r = 0; r < args.count; ++r) {
      float sum[kCount];
      load_floats(args.in + r * args.stride, first, args.n, args.aligned, sum);
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
    float total[kCount];
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
      float before[kCount];
      load_floats(args.out, first, args.n, args.aligned, before);
      add_left(before, total);
    }
    store_floats(args.out, first, args.n, args.aligned, total);
  }
}

}  // namespace

void tree_sum(const TreeSum& args, StreamRef stream) {
  dispatch_device_float("tree_sum", args.in.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.out.dtype(), [&]<class Target>() {
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
    });
  });
}

}  // namespace zinc::kernels::cuda
