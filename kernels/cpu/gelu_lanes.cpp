// The f32, bf16 and f16 paths of gelu.
#include "kernels/gelu.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T, class Function>
void forward(const GeluForward& args) {
  const T* x = args.x.data_as<T>();
  T* y = args.y.data_as<T>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(Function::value(load(x + at[0])), y + at[1]); },
      args.x, args.y);
}

template <class T, class Function>
void backward(const GeluBackward& args) {
  const T* x = args.x.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  T* dx = args.dx.data_as<T>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        store(hn::Mul(load(dy + at[1]), Function::derivative(load(x + at[0]))), dx + at[2]);
      },
      args.x, args.dy, args.dx);
}

void gelu_forward_vectors(const GeluForward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    args.kind == GeluKind::erf ? forward<T, GeluErfLanes>(args) : forward<T, GeluTanhLanes>(args);
  });
}

void gelu_backward_vectors(const GeluBackward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    args.kind == GeluKind::erf ? backward<T, GeluErfLanes>(args) : backward<T, GeluTanhLanes>(args);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(gelu_forward_vectors);
HWY_EXPORT(gelu_backward_vectors);

void gelu_forward_lanes(const GeluForward& args) {
  HWY_DYNAMIC_DISPATCH(gelu_forward_vectors)(args);
}
void gelu_backward_lanes(const GeluBackward& args) {
  HWY_DYNAMIC_DISPATCH(gelu_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
