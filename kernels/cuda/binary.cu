// Element-wise functions of two arguments and their derivatives: maps (elementwise.h), in which a
// repeated b has strides of 0; the gradient of a repeated b: column sums (sums.h). The op is a
// value, not a template argument: it is the same for all threads, and memory sets the pace.
#include "kernels/binary.h"

#include "kernels/binary_functions.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

constexpr bool is_linear(BinaryOp op) { return op == BinaryOp::add || op == BinaryOp::sub; }

// The one element of b, from the device or the host.
template <class T>
struct One {
  const T* device;  // null: `value`
  float value = 0.0f;
  __device__ __forceinline__ void load() {
    if (device != nullptr) value = static_cast<float>(*device);
  }
};

struct Values : PlainFunction {  // a, b -> y
  BinaryOp op;
  explicit Values(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = value_of(op, in[0], in[1]);
  }
};
template <class T>
struct ValuesWithOne {  // a -> y
  static constexpr bool kHot = false;
  static constexpr bool kPromisesBits = true;
  BinaryOp op;
  One<T> b;
  __device__ __forceinline__ void begin() { b.load(); }
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = value_of(op, in[0], b.value);
  }
};
struct GradientsOfA : PlainFunction {  // a, b, dy -> da
  BinaryOp op;
  explicit GradientsOfA(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[3], float (&out)[1]) const {
    out[0] = gradient_of_a(op, in[0], in[1], in[2]);
  }
};
template <class T>
struct GradientsOfAWithOne {  // a, dy -> da
  static constexpr bool kHot = false;
  static constexpr bool kPromisesBits = true;
  BinaryOp op;
  One<T> b;
  __device__ __forceinline__ void begin() { b.load(); }
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = gradient_of_a(op, in[0], b.value, in[1]);
  }
};
template <int kIns>
struct GradientsOfB : PlainFunction {  // a, b, dy and, to accumulate, db -> db
  BinaryOp op;
  explicit GradientsOfB(BinaryOp which) : op(which) {}
  __device__ __forceinline__ void operator()(const float (&in)[kIns], float (&out)[1]) const {
    out[0] = gradient_of_b(op, in[0], in[1], in[2]);
    if constexpr (kIns == 4) out[0] = in[3] + out[0];
  }
};

// What a repeated b gets from [repetitions, elements of b], contiguous.
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
    if (op != BinaryOp::sub) {
      load_floats(a + row * cols, first, cols, fits, left);
      if (one) {
        for (int i = 0; i < kCount; ++i) right[i] = static_cast<float>(*b);
      } else {
        load_floats(b, first, cols, fits, right);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = gradient_of_b(op, left[i], right[i], out[i]);
  }
};

// `b` over the shape of a.
ConstView repeated(const ConstView& b, const Shape& shape) {
  if (b.shape() == shape) return b;
  Strides strides{};
  const int lead = shape.rank() - b.rank();
  for (int i = 0; i < b.rank(); ++i) strides[static_cast<size_t>(lead + i)] = b.stride(i);
  return ConstView(b.data(), b.dtype(), shape, strides, b.device(), b.tier());
}

template <class T>
void backward_a(const BinaryBackward& args, StreamRef stream) {
  const std::array<View, 1> da{args.da};
  if (is_linear(args.op)) {
    launch_map<T, T>(Identity{}, da, std::array<ConstView, 1>{args.dy}, stream);
  } else if (args.b.numel() == 1) {
    launch_map<T, T, T>(GradientsOfAWithOne<T>{args.op, {args.b.data_as<T>()}}, da,
                        std::array<ConstView, 2>{args.a, args.dy}, stream);
  } else {
    launch_map<T, T, T, T>(
        GradientsOfA(args.op), da,
        std::array<ConstView, 3>{args.a, repeated(args.b, args.dy.shape()), args.dy}, stream);
  }
}

template <class T, class Target>
void backward_b(const BinaryBackward& args, StreamRef stream) {
  const bool linear = is_linear(args.op);
  const ConstView& left = linear ? args.dy : args.a;
  if (args.b.shape() == args.dy.shape()) {
    if (args.dy.numel() == 0) return;
    const ConstView& right = linear ? args.dy : args.b;
    if (args.accumulate_db) {
      launch_map<Target, T, T, T, Target>(GradientsOfB<4>(args.op), std::array<View, 1>{args.db},
                                          std::array<ConstView, 4>{left, right, args.dy, args.db},
                                          stream);
    } else {
      launch_map<Target, T, T, T>(GradientsOfB<3>(args.op), std::array<View, 1>{args.db},
                                  std::array<ConstView, 3>{left, right, args.dy}, stream);
    }
    return;
  }
  const int64_t n = args.b.numel();
  if (n == 0) return;
  const bool one = n == 1;
  const int64_t terms = args.dy.numel();
  const int64_t cols = one ? terms : n;
  bool aligned = one || is_aligned_for_packs(args.b, 0);
  for (const ConstView& view : {left, args.dy}) {
    aligned = aligned && is_aligned_for_packs(view, cols);
  }
  const GradientTerm<T> term{
      args.op, left.data_as<T>(), args.b.data_as<T>(), args.dy.data_as<T>(), cols, one, aligned};
  const SumTarget<Target> target{args.db.data_as<Target>(), 1.0f, args.accumulate_db};
  if (one) {
    launch_fold_rows<SumOf>(term, 1, cols, target, stream);
  } else {
    launch_fold_columns<SumOf>(term, terms / n, n, target, stream);
  }
}

}  // namespace

void binary(const Binary& args, StreamRef stream) {
  const std::array<View, 1> y{args.y};
  dispatch_device_float("binary", args.a.dtype(), [&]<class T>() {
    if (args.b.numel() == 1 && args.b.shape() != args.a.shape()) {
      launch_map<T, T>(ValuesWithOne<T>{args.op, {args.b.data_as<T>()}}, y,
                       std::array<ConstView, 1>{args.a}, stream);
    } else {
      launch_map<T, T, T>(Values(args.op), y,
                          std::array<ConstView, 2>{args.a, repeated(args.b, args.a.shape())},
                          stream);
    }
  });
}

void binary_scalar(const BinaryScalar& args, StreamRef stream) {
  dispatch_device_float("binary_scalar", args.a.dtype(), [&]<class T>() {
    launch_map<T, T>(ValuesWithOne<T>{args.op, {nullptr, static_cast<float>(args.b)}},
                     std::array<View, 1>{args.y}, std::array<ConstView, 1>{args.a}, stream);
  });
}

void binary_backward(const BinaryBackward& args, StreamRef stream) {
  dispatch_device_float("binary_backward", args.dy.dtype(), [&]<class T>() {
    if (args.db) {
      dispatch_sum_target<T>(args.db.dtype(),
                             [&]<class Target>() { backward_b<T, Target>(args, stream); });
    }
    if (args.da && args.dy.numel() > 0) backward_a<T>(args, stream);
  });
}

}  // namespace zinc::kernels::cuda
