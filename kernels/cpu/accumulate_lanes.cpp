// The paths of accumulate among f32, bf16 and f16.
#include "kernels/accumulate.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/accumulate_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T, class Total>
void add(const Accumulate& args) {
  const T* x = args.x.data_as<T>();
  Total* total = args.accumulator.data_as<Total>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        const Total* before = total + at[1];
        store(hn::Add(load(before), load(x + at[0])), total + at[1]);
      },
      args.x, args.accumulator);
}

template <class T, class Total>
void overwrite(const Accumulate& args) {
  const T* x = args.x.data_as<T>();
  Total* total = args.accumulator.data_as<Total>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(load(x + at[0]), total + at[1]); },
      args.x, args.accumulator);
}

void accumulate_vectors(const Accumulate& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    dispatch_short_float(args.accumulator.dtype(), [&]<class Total>() {
      args.overwrite ? overwrite<T, Total>(args) : add<T, Total>(args);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(accumulate_vectors);

void accumulate_lanes(const Accumulate& args) { HWY_DYNAMIC_DISPATCH(accumulate_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
