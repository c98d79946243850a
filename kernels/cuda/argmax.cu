// The place of the largest element: a block per row. Traffic: x in.
#include "kernels/argmax.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cuda/best.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kMapThreads)
    argmax_kernel(const T* x, int64_t stride, int64_t rows, int64_t cols, bool aligned,
                  bool smallest, int64_t* y) {
  constexpr int kCount = kPack<T>;
  ZINC_SHARED(float, values, [kMapThreads / kWarp]);
  ZINC_SHARED(int64_t, places, [kMapThreads / kWarp]);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    Best best;
    const int64_t step = int64_t{kMapThreads} * kCount;
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      float in[kCount];
      load_floats(x + r * stride, first, cols, aligned, in);
      for (int i = 0; i < kCount; ++i) {
        best.take(smallest ? -in[i] : in[i], first + i < cols ? first + i : -1);
      }
    }
    best.take_of_block(values, places);
    if (threadIdx.x == 0) y[r] = best.place;
  }
}

}  // namespace

void argmax(const Argmax& args, StreamRef stream) {
  const int64_t stride = row_stride("argmax", "x", args.x);
  const int64_t blocks = std::min(kMaxMapBlocks, args.x.dim(0));
  dispatch_device_float("argmax", args.x.dtype(), [&]<class T>() {
    launch(argmax_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
           args.x.data_as<T>(), stride, args.x.dim(0), args.x.dim(1),
           is_aligned_for_packs(args.x, stride), args.smallest, args.y.data_as<int64_t>());
  });
}

}  // namespace zinc::kernels::cuda
