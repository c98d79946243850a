// The conversions of copy between f32, bf16 and f16.
#include "kernels/copy.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class From, class To>
void convert(const Copy& args) {
  const From* x = args.x.data_as<From>();
  To* y = args.y.data_as<To>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR { store(load(x + at[0]), y + at[1]); },
      args.x, args.y);
}

void convert_vectors(const Copy& args) {
  dispatch_short_float(args.x.dtype(), [&]<class From>() {
    dispatch_short_float(args.y.dtype(), [&]<class To>() { convert<From, To>(args); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(convert_vectors);

void convert_lanes(const Copy& args) { HWY_DYNAMIC_DISPATCH(convert_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
