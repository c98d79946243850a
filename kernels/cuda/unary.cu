// Element-wise functions of one argument and their derivatives: maps (elementwise.h); 2 and 3
// arrays of traffic. The op is a value, not a template argument: it is the same for all threads,
// and memory sets the pace.
#include "kernels/unary.h"

#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct Values : PlainFunction {  // x -> y
  UnaryOp op;
  explicit Values(UnaryOp which) : op(which) {}
  __device__ __forceinline__ float value(float x) const {
    switch (op) {
      case UnaryOp::neg:
        return -x;
      case UnaryOp::abs:
        return fabsf(x);
      case UnaryOp::square:
        return x * x;
      case UnaryOp::sqrt:
        return sqrtf(x);
      case UnaryOp::rsqrt:
        return 1.0f / sqrtf(x);
      case UnaryOp::reciprocal:
        return 1.0f / x;
      case UnaryOp::exp:
        return expf(x);
      case UnaryOp::log:
        return logf(x);
      case UnaryOp::tanh:
        return tanhf(x);
      case UnaryOp::sigmoid:
        return Sigmoid<T>(x).value;
      case UnaryOp::relu:
        return x <= 0.0f ? 0.0f : x;  // a NaN stays
      case UnaryOp::silu:
        break;
    }
    return Silu<T>::value(x);
  }
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = value(in[0]);
  }
};

// Without the cancellation of 1 - tanh(x)^2.
__device__ __forceinline__ float tanh_slope(float x) {
  const float e = expf(-2.0f * fabsf(x));
  return 4.0f * e / ((1.0f + e) * (1.0f + e));
}

template <class T>
struct Gradients : PlainFunction {  // x, dy -> dx
  UnaryOp op;
  explicit Gradients(UnaryOp which) : op(which) {}
  __device__ __forceinline__ float gradient(float x, float dy) const {
    switch (op) {
      case UnaryOp::neg:
        return -dy;
      case UnaryOp::abs:
        return x == 0.0f ? 0.0f : x < 0.0f ? -dy : dy;
      case UnaryOp::square:
        return dy * (x + x);
      case UnaryOp::sqrt:
        return dy * 0.5f / sqrtf(x);
      case UnaryOp::rsqrt:
        return dy * -0.5f / (x * sqrtf(x));
      case UnaryOp::reciprocal:
        return -(dy / x / x);
      case UnaryOp::exp:
        return dy * expf(x);
      case UnaryOp::log:
        return dy / x;
      case UnaryOp::tanh:
        return dy * tanh_slope(x);
      case UnaryOp::sigmoid:
        return dy * Sigmoid<T>(x).slope;
      case UnaryOp::relu:
        return x > 0.0f ? dy : 0.0f;
      case UnaryOp::silu:
        break;
    }
    return dy * Silu<T>::slope(x);
  }
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = gradient(in[0], in[1]);
  }
};

}  // namespace

void unary(const Unary& args, StreamRef stream) {
  dispatch_device_float("unary", args.x.dtype(), [&]<class T>() {
    launch_map<T, T>(Values<T>(args.op), std::array<View, 1>{args.y},
                     std::array<ConstView, 1>{args.x}, stream);
  });
}

void unary_backward(const UnaryBackward& args, StreamRef stream) {
  dispatch_device_float("unary_backward", args.x.dtype(), [&]<class T>() {
    launch_map<T, T, T>(Gradients<T>(args.op), std::array<View, 1>{args.dx},
                        std::array<ConstView, 2>{args.x, args.dy}, stream);
  });
}

}  // namespace zinc::kernels::cuda
