// Loss and gradient of rows of logits; a warp or a block per row. Traffic: logits in once without a
// gradient, dlogits out with one; logits are then read a second time where lse was not given.
#include "kernels/cuda/cross_entropy_rows.h"

#include "kernels/cross_entropy.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/softmax_rows.h"

namespace zinc::kernels::cuda {
namespace {

template <class T, class U>
struct RowsArgs {
  const T* logits;
  int64_t logits_stride;
  Indices labels;
  const float* lse;  // null: computed
  float* lse_out;    // may be null
  double* row_loss;  // may be null
  U* dlogits;        // null: no gradient
  int64_t dlogits_stride;
  const float* factor;  // null: 1
  double scale;
  double smoothing;
  double all_classes;
  float off_label, off_elsewhere;  // subtracted from probabilities
  int64_t rows, classes;
  int64_t first_class;
  bool is_slice;
  TableRows label_rows;
  bool aligned;
};

// Every thread of the group reads its part of a run of columns before any thread writes: dlogits
// may be narrower than logits and begin where they do.
template <class T, class U>
__device__ __forceinline__ void store_gradient(const RowsArgs<T, U>& args, int64_t r, int64_t label,
                                               float lse, float at_label, float scale) {
  constexpr int kCount = kPack < T >> kPack<U> ? kPack<T> : kPack<U>;
  const T* x = args.logits + r * args.logits_stride;
  U* dx = args.dlogits + r * args.dlogits_stride;
  const int64_t step = int64_t{blockDim.x} * kCount;
  const float slope_at_label = (expf(at_label - lse) - args.off_label) * scale;
  for (int64_t base = 0; base < args.classes; base += step) {
    const int64_t first = base + int64_t{threadIdx.x} * kCount;
    float values[kCount];
    const bool is_whole = args.aligned && first + kCount <= args.classes;
    if (first < args.classes) {
      if (is_whole) {
        load_floats(x, first, args.classes, WholePacks{}, values);
      } else {
        load_floats(x, first, args.classes, false, values);
      }
      const int at =
          label >= first && label < first + kCount ? static_cast<int>(label - first) : -1;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] =
            i == at ? slope_at_label : (exp_of<U>(values[i] - lse) - args.off_elsewhere) * scale;
      }
    }
    if constexpr (sizeof(U) < sizeof(T)) {
      if (blockDim.x == kWarp) {
        __syncwarp();
      } else {
        __syncthreads();
      }
    }
    if (is_whole) {
      store_rounded(dx, first, args.classes, WholePacks{}, values);
    } else if (first < args.classes) {
      store_rounded(dx, first, args.classes, false, values);
    }
  }
}

template <class T, class U>
__device__ __forceinline__ void store_constant(const RowsArgs<T, U>& args, int64_t r, float value) {
  constexpr int kCount = kPack<U>;
  float values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = value;
  const int64_t step = int64_t{blockDim.x} * kCount;
  for (int64_t first = int64_t{threadIdx.x} * kCount; first < args.classes; first += step) {
    store_floats(args.dlogits + r * args.dlogits_stride, first, args.classes, args.aligned, values);
  }
}

// Returns the sum to all threads of the row's group, once all of them have read the row.
template <class T>
__device__ __forceinline__ float sum_of_row(const T* x, int64_t classes) {
  float mine = 0.0f;
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) mine += static_cast<float>(x[c]);
  return row_sum(mine);
}

template <class T, class U>
__global__ void __launch_bounds__(kMaxBlockThreads) rows_kernel(RowsArgs<T, U> args) {
  double scale = args.scale;
  if (args.factor != nullptr) scale *= double{*args.factor};
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < args.rows;
       r += int64_t{gridDim.x} * blockDim.y) {
    int64_t label = args.labels[r];
    const T* x = args.logits + r * args.logits_stride;
    if (label == kIgnoredLabel || !args.label_rows.has(label, r)) {
      const float nothing = label == kIgnoredLabel ? 0.0f : NAN;
      if (threadIdx.x == 0) {
        if (args.lse_out != nullptr) args.lse_out[r] = nothing;
        if (args.row_loss != nullptr) args.row_loss[r] = nothing;
      }
      if (args.dlogits != nullptr) store_constant(args, r, nothing);
      continue;
    }
    label -= args.first_class;
    const bool is_here = label >= 0 && label < args.classes;
    if (!is_here) label = -1;
    const float at_label = is_here ? static_cast<float>(x[label]) : 0.0f;
    float lse = 0.0f;
    if (args.lse != nullptr) {
      lse = args.lse[r];
      // No thread writes the row before all have read the label's logit.
      if (blockDim.x == kWarp) {
        __syncwarp();
      } else {
        __syncthreads();
      }
    } else {
      const ExpSum sum = exp_sum_of_row(x, args.classes, args.aligned);
      lse = sum.shift() + logf(sum.sum);
    }
    double loss = (args.is_slice ? 0.0 : double{lse}) - double{at_label};
    if (args.smoothing > 0.0 && args.row_loss != nullptr) {
      const double mean = double{sum_of_row(x, args.classes)} / args.all_classes;
      loss += args.smoothing * (double{at_label} - mean);
    }
    if (threadIdx.x == 0) {
      if (args.lse_out != nullptr) args.lse_out[r] = lse;
      if (args.row_loss != nullptr) args.row_loss[r] = loss;
    }
    if (args.dlogits == nullptr) continue;
    store_gradient(args, r, label, lse, at_label, static_cast<float>(scale));
  }
}

// Thread t adds rows t, t + 1024, ... in f64, the block its threads.
constexpr int kLossThreads = 1024;
__global__ void __launch_bounds__(kLossThreads)
    sum_losses_kernel(const double* row_loss, int64_t rows, float* loss) {
  double sum = 0.0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows; r += kLossThreads) sum += row_loss[r];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum);
}

bool is_aligned(const void* rows, int64_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride_bytes % 16 == 0;
}

template <class T, class U>
void launch_rows(const char* op, const cpu::CrossEntropyRows& args, StreamRef stream) {
  const RowShape shape = row_shape(args.classes, kPack<T>, 4);
  const int64_t blocks = std::min(kMaxRowBlocks, packs_of(args.rows, shape.rows_at_a_time));
  const bool aligned = is_aligned(args.logits, args.logits_stride * int64_t{sizeof(T)}) &&
                       (args.dlogits == nullptr ||
                        is_aligned(args.dlogits, args.dlogits_stride * int64_t{sizeof(U)}));
  const RowsArgs<T, U> kernel_args{static_cast<const T*>(args.logits),
                                   args.logits_stride,
                                   Indices(args.labels),
                                   static_cast<const float*>(args.lse),
                                   static_cast<float*>(args.lse_out),
                                   args.row_loss,
                                   static_cast<U*>(args.dlogits),
                                   args.dlogits_stride,
                                   static_cast<const float*>(args.factor),
                                   args.scale,
                                   args.smoothing,
                                   static_cast<double>(args.all_classes()),
                                   static_cast<float>(args.off_label()),
                                   static_cast<float>(args.off_elsewhere()),
                                   args.rows,
                                   args.classes,
                                   args.slice.first,
                                   args.slice.total > 0,
                                   TableRows(args.all_classes(), op, "labels", stream),
                                   aligned};
  launch(rows_kernel<T, U>, dim3(static_cast<unsigned>(blocks)), shape.block, 0, stream,
         kernel_args);
}

}  // namespace

void cross_entropy_rows(const char* op, const cpu::CrossEntropyRows& args, StreamRef stream) {
  if (args.rows == 0) return;
  dispatch_device_float(op, args.dtype, [&]<class T>() {
    if (args.dlogits == nullptr || args.dlogits_dtype == args.dtype) {
      return launch_rows<T, T>(op, args, stream);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (args.dlogits_dtype == DType::bf16) return launch_rows<T, bf16>(op, args, stream);
      if (args.dlogits_dtype == DType::f16) return launch_rows<T, f16>(op, args, stream);
    }
    bug_check(false, op, ": dlogits of ", args.dlogits_dtype, " for logits of ", args.dtype);
  });
}

void sum_row_losses(const double* row_loss, int64_t rows, const View& loss, StreamRef stream) {
  launch(sum_losses_kernel, dim3(1), dim3(kLossThreads), 0, stream, row_loss, rows,
         loss.data_as<float>());
}

}  // namespace zinc::kernels::cuda
