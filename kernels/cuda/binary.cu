// Element-wise functions of two arguments and their derivatives: maps (elementwise.h); the gradient
// of a b that is repeated as a row: column sums (sums.h). The op is a value, not a template
// argument: it is the same for all threads, and memory sets the pace.
#include "kernels/binary.h"

#include "kernels/cuda/number.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

using N = Number<float>;

struct Values : PlainFunction {  // a, b -> y
  BinaryOp op;
  explicit Values(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = value_of(op, N(in[0]), N(in[1])).value;
  }
};
struct GradientsOfA : PlainFunction {  // a, b, dy -> da
  BinaryOp op;
  explicit GradientsOfA(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[3], float (&out)[1]) const {
    out[0] = gradient_of_a(op, N(in[0]), N(in[1]), N(in[2])).value;
  }
};
template <int kIns>
struct GradientsOfB : PlainFunction {  // a, b, dy and, to accumulate, db -> db
  BinaryOp op;
  explicit GradientsOfB(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[kIns], float (&out)[1]) const {
    out[0] = gradient_of_b(op, N(in[0]), N(in[1]), N(in[2])).value;
    if constexpr (kIns == 4) out[0] = in[3] + out[0];
  }
};

// The terms of the gradient of a b that repeats as a row: [repetitions, elements of b], contiguous.
template <class T>
struct GradientTerm {
  static constexpr int kCount = kPack<T>;
  BinaryOp op;
  const T *a, *b, *dy;
  int64_t cols;
  bool one;      // b is a single element
  bool aligned;  // rows of a and dy, and b
  __device__ __forceinline__ void load(int64_t row, int64_t first, float (&out)[kCount]) const {
    load_as(row, first, aligned, out);
  }
  __device__ __forceinline__ bool is_whole(int64_t first) const {
    return aligned && first + kCount <= cols;
  }
  __device__ __forceinline__ void load_whole(int64_t row, int64_t first,
                                             float (&out)[kCount]) const {
    load_as(row, first, WholePacks{}, out);
  }

 private:
  template <class Aligned>
  __device__ __forceinline__ void load_as(int64_t row, int64_t first, Aligned fits,
                                          float (&out)[kCount]) const {
    load_floats(dy + row * cols, first, cols, fits, out);
    if (op == BinaryOp::add) return;
    float left[kCount] = {};
    float right[kCount] = {};
    if (reads_arguments(op)) {
      load_floats(a + row * cols, first, cols, fits, left);
      if (one) {
        for (int i = 0; i < kCount; ++i) right[i] = static_cast<float>(*b);
      } else {
        load_floats(b, first, cols, fits, right);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      out[i] = gradient_of_b(op, N(left[i]), N(right[i]), N(out[i])).value;
    }
  }
};

template <class T, class Target>
void sum_repetitions(const BinaryBackward& args, const ConstView& a, StreamRef stream) {
  const int64_t n = args.b.numel();
  if (n == 0) return;
  const bool one = n == 1;
  const int64_t terms = args.dy.numel();
  const int64_t cols = one ? terms : n;
  bool aligned = one || is_aligned_for_packs(args.b, 0);
  for (const ConstView& view : {a, args.dy}) {
    aligned = aligned && is_aligned_for_packs(view, cols);
  }
  const GradientTerm<T> term{
      args.op, a.data_as<T>(), args.b.data_as<T>(), args.dy.data_as<T>(), cols, one, aligned};
  const SumTarget<Target> target{args.db.data_as<Target>(), 1.0f, args.accumulate_db};
  if (one) {
    launch_fold_rows<SumOf>(term, 1, cols, target, stream);
  } else {
    launch_fold_columns<SumOf>(term, terms / n, n, target, stream);
  }
}

template <class T, class Target>
void backward_b(const BinaryBackward& args, const ConstView& a, const ConstView& b,
                StreamRef stream) {
  if (args.db.shape() != args.dy.shape()) return sum_repetitions<T, Target>(args, a, stream);
  if (args.dy.numel() == 0) return;
  if (args.accumulate_db) {
    launch_map<Target, T, T, T, Target>(GradientsOfB<4>(args.op), std::array<View, 1>{args.db},
                                        std::array<ConstView, 4>{a, b, args.dy, args.db}, stream);
  } else {
    launch_map<Target, T, T, T>(GradientsOfB<3>(args.op), std::array<View, 1>{args.db},
                                std::array<ConstView, 3>{a, b, args.dy}, stream);
  }
}

}  // namespace

void binary(const Binary& args, StreamRef stream) {
  dispatch_device_float("binary", args.a.dtype(), [&]<class T>() {
    launch_map<T, T, T>(Values(args.op), std::array<View, 1>{args.y},
                        std::array<ConstView, 2>{args.a, args.b}, stream);
  });
}

void binary_backward(const BinaryBackward& args, StreamRef stream) {
  // dy stands in the place of arguments that are not read.
  const bool reads = reads_arguments(args.op);
  const ConstView& a = reads ? args.a : ConstView(args.dy);
  const ConstView& b = reads ? args.b : ConstView(args.dy);
  dispatch_device_float("binary_backward", args.dy.dtype(), [&]<class T>() {
    if (args.db) {
      dispatch_sum_target<T>(args.db.dtype(),
                             [&]<class Target>() { backward_b<T, Target>(args, a, b, stream); });
    }
    if (!args.da || args.dy.numel() == 0) return;
    dispatch_sum_target<T>(args.da.dtype(), [&]<class Target>() {
      launch_map<Target, T, T, T>(GradientsOfA(args.op), std::array<View, 1>{args.da},
                                  std::array<ConstView, 3>{a, b, args.dy}, stream);
    });
  });
}

}  // namespace zinc::kernels::cuda
