// GELU and its derivative: maps (elementwise.h); 2 and 3 arrays of traffic.
#include "kernels/gelu.h"

#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class Curve>
struct Value : HotFunction {
  static constexpr bool kPromisesBits = false;
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = Curve::value(in[0]);
  }
};
template <class Curve>
struct Derivative : HotFunction {
  static constexpr bool kPromisesBits = false;
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[1] * Curve::derivative(in[0]);
  }
};

}  // namespace

void gelu_forward(const GeluForward& args, StreamRef stream) {
  dispatch_device_float("gelu", args.x.dtype(), [&]<class T>() {
    const std::array<View, 1> out{args.y};
    const std::array<ConstView, 1> in{args.x};
    if (args.kind == GeluKind::erf) {
      launch_map<T, T>(Value<GeluErf>{}, out, in, stream);
    } else {
      launch_map<T, T>(Value<GeluTanh<T>>{}, out, in, stream);
    }
  });
}

void gelu_backward(const GeluBackward& args, StreamRef stream) {
  dispatch_device_float("gelu_backward", args.x.dtype(), [&]<class T>() {
    const std::array<View, 1> out{args.dx};
    const std::array<ConstView, 2> in{args.x, args.dy};
    if (args.kind == GeluKind::erf) {
      launch_map<T, T, T>(Derivative<GeluErf>{}, out, in, stream);
    } else {
      launch_map<T, T, T>(Derivative<GeluTanh<T>>{}, out, in, stream);
    }
  });
}

}  // namespace zinc::kernels::cuda
