// The f32, bf16 and f16 paths of scale.
#include "kernels/scale.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scale_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
void multiply(const Scale& args, float factor) {
  const T* x = args.x.data_as<T>();
  T* y = args.y.data_as<T>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(hn::Mul(load(x + at[0]), hn::Set(Lanes(), factor)), y + at[1]); },
      args.x, args.y);
}

void scale_vectors(const Scale& args, float factor) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { multiply<T>(args, factor); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(scale_vectors);

void scale_lanes(const Scale& args, float factor) {
  HWY_DYNAMIC_DISPATCH(scale_vectors)(args, factor);
}

}  // namespace zinc::kernels::cpu
#endif
