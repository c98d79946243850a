// Element-wise functions of one argument and their derivatives: maps (elementwise.h); 2 and 3
// arrays of traffic. The op is a value, not a template argument: it is the same for all threads,
// and memory sets the pace.
#include "kernels/unary.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/number.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct Values : PlainFunction {  // x -> y
  UnaryOp op;
  float p, q;
  Values(UnaryOp which, double first, double second)
      : op(which), p(static_cast<float>(first)), q(static_cast<float>(second)) {}
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    using N = Number<T>;
    out[0] = value_of(op, N(in[0]), N(p), N(q)).value;
  }
};

template <class T>
struct Gradients : PlainFunction {  // x, dy -> dx
  UnaryOp op;
  float p, q;
  Gradients(UnaryOp which, double first, double second)
      : op(which), p(static_cast<float>(first)), q(static_cast<float>(second)) {}
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    using N = Number<T>;
    out[0] = gradient_of(op, N(in[0]), N(in[1]), N(p), N(q)).value;
  }
};

}  // namespace

void unary(const Unary& args, StreamRef stream) {
  dispatch_device_float("unary", args.x.dtype(), [&]<class T>() {
    launch_map<T, T>(Values<T>(args.op, args.p, args.q), std::array<View, 1>{args.y},
                     std::array<ConstView, 1>{args.x}, stream);
  });
}

void unary_backward(const UnaryBackward& args, StreamRef stream) {
  dispatch_device_float("unary_backward", args.x.dtype(), [&]<class T>() {
    launch_map<T, T, T>(Gradients<T>(args.op, args.p, args.q), std::array<View, 1>{args.dx},
                        std::array<ConstView, 2>{args.x, args.dy}, stream);
  });
}

}  // namespace zinc::kernels::cuda
