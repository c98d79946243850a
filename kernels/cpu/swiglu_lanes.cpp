// The f32, bf16 and f16 paths of swiglu.
#include "kernels/swiglu.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
void forward(const SwiGluForward& args) {
  const T* gate = args.gate.data_as<T>();
  const T* up = args.up.data_as<T>();
  T* y = args.y.data_as<T>();
  for_each_element_vector(
      args.gate.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        store(hn::Mul(SiluLanes::value(load(gate + at[0])), load(up + at[1])), y + at[2]);
      },
      args.gate, args.up, args.y);
}

template <class T>
void backward(const SwiGluBackward& args) {
  const T* dy = args.dy.data_as<T>();
  const T* gate = args.gate.data_as<T>();
  const T* up = args.up.data_as<T>();
  T* dgate = args.dgate.data_as<T>();
  T* dup = args.dup.data_as<T>();
  for_each_element_vector(
      args.gate.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        const auto d = load(dy + at[0]);
        const auto z = load(gate + at[1]);
        const auto u = load(up + at[2]);
        const SigmoidLanes s(z);
        const auto derivative = hn::MulAdd(z, s.derivative, s.value);
        store(hn::Mul(hn::Mul(d, u), derivative), dgate + at[3]);
        store(hn::Mul(d, hn::Mul(z, s.value)), dup + at[4]);
      },
      args.dy, args.gate, args.up, args.dgate, args.dup);
}

void swiglu_forward_vectors(const SwiGluForward& args) {
  dispatch_short_float(args.gate.dtype(), [&]<class T>() { forward<T>(args); });
}

void swiglu_backward_vectors(const SwiGluBackward& args) {
  dispatch_short_float(args.gate.dtype(), [&]<class T>() { backward<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(swiglu_forward_vectors);
HWY_EXPORT(swiglu_backward_vectors);

void swiglu_forward_lanes(const SwiGluForward& args) {
  HWY_DYNAMIC_DISPATCH(swiglu_forward_vectors)(args);
}
void swiglu_backward_lanes(const SwiGluBackward& args) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
