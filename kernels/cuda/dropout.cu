// Dropout, with or without a residual: a thread computes the random words of its run of elements;
// the mask is never stored. Traffic: x (and residual) in, y out.
#include "kernels/dropout.h"

#include "kernels/cpu/dropout_threshold.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/random_counter.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct DropoutArgs {
  const T* x;
  const T* residual;  // null: none
  T* y;
  int64_t n;
  RandomKey key;
  const uint64_t* counter;  // null: that of the key
  uint64_t first_element;
  uint32_t threshold;
  float factor;
  bool aligned;
};

template <class T>
__global__ void __launch_bounds__(kMapThreads) dropout_kernel(DropoutArgs<T> args) {
  constexpr int kCount = kPack<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kCount;
  // Element i of the run is word `shift + i` of the blocks that it lies in, four to a block.
  const int shift = static_cast<int>(args.first_element % 4);
  const uint64_t counter = args.counter != nullptr ? *args.counter : args.key.counter_high;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < args.n;
       first += step) {
    float x[kCount];
    load_floats(args.x, first, args.n, args.aligned, x);
    const uint64_t block = (args.first_element + static_cast<uint64_t>(first)) / 4;
#pragma unroll
    for (int b = 0; b <= kCount / 4; ++b) {
      if (b == kCount / 4 && shift == 0) break;
      const PhiloxBlock words = philox4x32(block + b, counter, args.key.key);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int word = shift + i - 4 * b;
        if (word < 0 || word >= 4) continue;
        const uint32_t bits = word < 2 ? (word == 0 ? words.word[0] : words.word[1])
                                       : (word == 2 ? words.word[2] : words.word[3]);
        x[i] = (bits >> 9) >= args.threshold ? x[i] * args.factor : 0.0f;
      }
    }
    if (args.residual != nullptr) {
      float residual[kCount];
      load_floats(args.residual, first, args.n, args.aligned, residual);
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = residual[i] + x[i];
    }
    store_floats(args.y, first, args.n, args.aligned, x);
  }
}

}  // namespace

void dropout_residual(const DropoutResidual& args, StreamRef stream) {
  dispatch_device_float("dropout", args.x.dtype(), [&]<class T>() {
    const DropoutArgs<T> kernel_args{args.x.data_as<T>(),
                                     args.residual ? args.residual.data_as<T>() : nullptr,
                                     args.y.data_as<T>(),
                                     args.x.numel(),
                                     args.key,
                                     counter_of(args.counter),
                                     static_cast<uint64_t>(args.first_element),
                                     cpu::dropout_threshold(args.p),
                                     cpu::dropout_factor<float>(args.p),
                                     is_aligned_for_packs(args.x, 0) &&
                                         is_aligned_for_packs(args.residual, 0) &&
                                         is_aligned_for_packs(args.y, 0)};
    const int64_t blocks =
        std::min(kMaxMapBlocks, packs_of(packs_of(kernel_args.n, kPack<T>), kMapThreads));
    launch(dropout_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
           kernel_args);
  });
}

}  // namespace zinc::kernels::cuda
