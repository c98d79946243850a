// Sums, means and maxima (sums.h), and their derivatives: maps of the gradient over its rows or
// columns, for the maximum a search per row or column. Traffic: x in, or dx out (a maximum: x in).
#include "kernels/reduce.h"

#include "kernels/checks.h"
#include "kernels/cuda/best.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

// The array as the sums see it: `all` is one row.
struct Matrix {
  int64_t rows, cols, stride;
};
Matrix matrix_of(const ConstView& x, ReduceOver over) {
  if (over == ReduceOver::all) return {1, x.numel(), x.numel()};
  return {x.rows(), x.cols(), row_stride("reduce", "x", x)};
}

template <class Fold, class T, class Target>
void fold(const Reduce& args, StreamRef stream) {
  const Matrix m = matrix_of(args.x, args.over);
  const bool leading = args.over == ReduceOver::leading;
  const MatrixTerm<T> term{args.x.data_as<T>(), m.stride, m.cols,
                           is_aligned_for_packs(args.x, m.stride)};
  const auto count = static_cast<float>(leading ? m.rows : m.cols);
  const SumTarget<Target> target{args.y.data_as<Target>(), args.op == ReduceOp::mean ? count : 1.0f,
                                 args.accumulate};
  if (leading) {
    launch_fold_columns<Fold>(term, m.rows, m.cols, target, stream);
  } else {
    launch_fold_rows<Fold>(term, m.rows, m.cols, target, stream);
  }
}

template <class T>
struct Pitched {
  T* data;
  int64_t stride;
};

// dx[r, c] = dy[r or c] / divisor; with `along_columns` dy has an element per column.
template <class T, class Gradient>
__global__ void __launch_bounds__(kMapThreads)
    spread_kernel(const Gradient* dy, bool along_columns, float divisor, Pitched<T> dx,
                  int64_t rows, int64_t cols, bool aligned) {
  constexpr int kCount = kPack<T>;
  const int64_t per_row = (cols + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * rows;
       item += step) {
    const int64_t r = item / per_row;
    const int64_t first = (item - r * per_row) * kCount;
    float values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = !along_columns ? r : first + i < cols ? first + i : cols - 1;
      values[i] = static_cast<float>(dy[at]) / divisor;
    }
    store_floats(dx.data + r * dx.stride, first, cols, aligned, values);
  }
}

// A block per row.
template <class T, class Gradient>
__global__ void __launch_bounds__(kMapThreads)
    route_rows_kernel(const Gradient* dy, Pitched<const T> x, Pitched<T> dx, int64_t rows,
                      int64_t cols, bool aligned) {
  constexpr int kCount = kPack<T>;
  ZINC_SHARED(float, values, [kMapThreads / kWarp]);
  ZINC_SHARED(int64_t, places, [kMapThreads / kWarp]);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    Best best;
    const int64_t step = int64_t{kMapThreads} * kCount;
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      float in[kCount];
      load_floats(x.data + r * x.stride, first, cols, aligned, in);
      for (int i = 0; i < kCount; ++i) best.take(in[i], first + i < cols ? first + i : -1);
    }
    best.take_of_block(values, places);
    const auto gradient = static_cast<float>(dy[r]);
    for (int64_t first = int64_t{threadIdx.x} * kCount; first < cols; first += step) {
      float out[kCount];
      for (int i = 0; i < kCount; ++i) out[i] = first + i == best.place ? gradient : 0.0f;
      store_floats(dx.data + r * dx.stride, first, cols, aligned, out);
    }
  }
}

// A thread per column: neighbours read neighbours.
template <class T, class Gradient>
__global__ void __launch_bounds__(kMapThreads)
    route_columns_kernel(const Gradient* dy, Pitched<const T> x, Pitched<T> dx, int64_t rows,
                         int64_t cols) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  Best best;
  for (int64_t r = 0; r < rows; ++r) {
    best.take(static_cast<float>(x.data[r * x.stride + c]), r);
    dx.data[r * dx.stride + c] = T(0.0f);
  }
  dx.data[best.place * dx.stride + c] = T(static_cast<float>(dy[c]));
}

dim3 blocks_of(int64_t items) {
  return dim3(static_cast<unsigned>(std::min(kMaxMapBlocks, packs_of(items, kMapThreads))));
}

template <class T, class Gradient>
void spread(const ReduceBackward& args, StreamRef stream) {
  const Matrix m = matrix_of(args.dx, args.over);
  const bool leading = args.over == ReduceOver::leading;
  const auto count = static_cast<float>(leading ? m.rows : m.cols);
  launch(spread_kernel<T, Gradient>, blocks_of(m.rows * packs_of(m.cols, kPack<T>)),
         dim3(kMapThreads), 0, stream, args.dy.data_as<Gradient>(), leading,
         args.op == ReduceOp::mean ? count : 1.0f, Pitched<T>{args.dx.data_as<T>(), m.stride},
         m.rows, m.cols, is_aligned_for_packs(args.dx, m.stride));
}

template <class T, class Gradient>
void route(const ReduceBackward& args, StreamRef stream) {
  const Matrix m = matrix_of(args.x, args.over);
  const Matrix out = matrix_of(args.dx, args.over);
  const Pitched<const T> x{args.x.data_as<T>(), m.stride};
  const Pitched<T> dx{args.dx.data_as<T>(), out.stride};
  const Gradient* dy = args.dy.data_as<Gradient>();
  if (args.over == ReduceOver::leading) {
    launch(route_columns_kernel<T, Gradient>,
           dim3(static_cast<unsigned>(packs_of(m.cols, kMapThreads))), dim3(kMapThreads), 0, stream,
           dy, x, dx, m.rows, m.cols);
  } else {
    launch(route_rows_kernel<T, Gradient>,
           dim3(static_cast<unsigned>(std::min(kMaxMapBlocks, m.rows))), dim3(kMapThreads), 0,
           stream, dy, x, dx, m.rows, m.cols,
           is_aligned_for_packs(args.x, m.stride) && is_aligned_for_packs(args.dx, out.stride));
  }
}

}  // namespace

void reduce(const Reduce& args, StreamRef stream) {
  dispatch_device_float("reduce", args.x.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.y.dtype(), [&]<class Target>() {
      if (args.op == ReduceOp::max) {
        fold<LargestOf, T, Target>(args, stream);
      } else {
        fold<SumOf, T, Target>(args, stream);
      }
    });
  });
}

void reduce_backward(const ReduceBackward& args, StreamRef stream) {
  dispatch_device_float("reduce_backward", args.dx.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.dy.dtype(), [&]<class Gradient>() {
      if (args.op == ReduceOp::max) {
        route<T, Gradient>(args, stream);
      } else {
        spread<T, Gradient>(args, stream);
      }
    });
  });
}

}  // namespace zinc::kernels::cuda
