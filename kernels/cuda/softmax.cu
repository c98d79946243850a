// Softmax of rows and its derivative; a warp or a block per row. Traffic: x in (twice, the second
// time from the caches where a row fits), y out; dy and y in (likewise), dx out.
#include "kernels/softmax.h"

#include "kernels/cuda/softmax_rows.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kMaxBlockThreads)
    softmax_kernel(const T* x, T* y, int64_t rows, int64_t cols, bool aligned) {
  constexpr int kCount = kPack<T>;
  const int64_t step = int64_t{blockDim.x} * kCount;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    const ExpSum row = exp_sum_of_row(x + r * cols, cols, aligned);
    const float shift = row.shift();
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      float values[kCount];
      load_floats(x + r * cols, first, cols, aligned, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = exp_of<T>(values[i] - shift) / row.sum;
      store_rounded(y + r * cols, first, cols, aligned, values);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxBlockThreads)
    softmax_backward_kernel(const T* dy, const T* y, T* dx, int64_t rows, int64_t cols,
                            bool aligned) {
  constexpr int kCount = kPack<T>;
  const int64_t step = int64_t{blockDim.x} * kCount;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    float dot = 0.0f;
    float gradient[kCount];
    float value[kCount];
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      load_floats(dy + r * cols, first, cols, aligned, gradient);
      load_floats(y + r * cols, first, cols, aligned, value);
#pragma unroll
      for (int i = 0; i < kCount; ++i) dot += gradient[i] * value[i];
    }
    dot = row_sum(dot);
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      load_floats(dy + r * cols, first, cols, aligned, gradient);
      load_floats(y + r * cols, first, cols, aligned, value);
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] = value[i] * (gradient[i] - dot);
      store_rounded(dx + r * cols, first, cols, aligned, value);
    }
  }
}

struct Grid {
  RowShape shape;
  dim3 blocks;
};
Grid grid_of(int64_t rows, int64_t cols, int pack) {
  const RowShape shape = row_shape(cols, pack, 4);
  const int64_t blocks = std::min(kMaxRowBlocks, packs_of(rows, shape.rows_at_a_time));
  return {shape, dim3(static_cast<unsigned>(blocks))};
}

}  // namespace

void softmax_forward(const SoftmaxForward& args, StreamRef stream) {
  dispatch_device_float("softmax", args.x.dtype(), [&]<class T>() {
    const int64_t rows = args.x.rows();
    const int64_t cols = args.x.cols();
    const Grid grid = grid_of(rows, cols, kPack<T>);
    launch(softmax_kernel<T>, grid.blocks, grid.shape.block, 0, stream, args.x.data_as<T>(),
           args.y.data_as<T>(), rows, cols, can_read_packs({args.x, args.y}));
  });
}

void softmax_backward(const SoftmaxBackward& args, StreamRef stream) {
  dispatch_device_float("softmax_backward", args.dy.dtype(), [&]<class T>() {
    const int64_t rows = args.dy.rows();
    const int64_t cols = args.dy.cols();
    const Grid grid = grid_of(rows, cols, kPack<T>);
    launch(softmax_backward_kernel<T>, grid.blocks, grid.shape.block, 0, stream,
           args.dy.data_as<T>(), args.y.data_as<T>(), args.dx.data_as<T>(), rows, cols,
           can_read_packs({args.dy, args.y, args.dx}));
  });
}

}  // namespace zinc::kernels::cuda
