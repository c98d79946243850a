// SwiGLU and its derivatives: maps (elementwise.h); 3 and 5 arrays of traffic.
#include "kernels/swiglu.h"

#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct Gated : HotFunction {  // gate, up -> y
  static constexpr bool kPromisesBits = false;
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = Silu<T>::value(in[0]) * in[1];
  }
};
template <class T>
struct GatedDerivatives : HotFunction {  // dy, gate, up -> dgate, dup
  static constexpr bool kPromisesBits = false;
  __device__ __forceinline__ void operator()(const float (&in)[3], float (&out)[2]) const {
    out[0] = in[0] * in[2] * Silu<T>::derivative(in[1]);
    out[1] = in[0] * Silu<T>::value(in[1]);
  }
};

}  // namespace

void swiglu_forward(const SwiGluForward& args, StreamRef stream) {
  dispatch_device_float("swiglu", args.gate.dtype(), [&]<class T>() {
    launch_map<T, T, T>(Gated<T>{}, std::array<View, 1>{args.y},
                        std::array<ConstView, 2>{args.gate, args.up}, stream);
  });
}

void swiglu_backward(const SwiGluBackward& args, StreamRef stream) {
  dispatch_device_float("swiglu_backward", args.gate.dtype(), [&]<class T>() {
    launch_map<T, T, T, T>(GatedDerivatives<T>{}, std::array<View, 2>{args.dgate, args.dup},
                           std::array<ConstView, 3>{args.dy, args.gate, args.up}, stream);
  });
}

}  // namespace zinc::kernels::cuda
