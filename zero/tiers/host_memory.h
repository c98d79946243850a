// zero/tiers/host_memory.h: a view of host memory in the form that the CPU's kernels take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "core/float16.h"
#include "core/view.h"

namespace zinc::zero {

// Returns a view of the same memory on the CPU device if `view` is in the tier pinned_host, and
// `view` itself otherwise. No other function changes the tier of a view. A caller of host_memory()
// thereby decides that the CPU computes on the view.
template <class Pointer>
BasicView<Pointer> host_memory(const BasicView<Pointer>& view) {
  if (view.tier() != Tier::pinned_host) return view;
  const Device cpu{.kind = DeviceKind::cpu, .index = 0, .meta = view.device().meta};
  return {view.data(), view.dtype(), view.shape(), view.strides(), cpu, Tier::device};
}

// Copies contiguous host memory on any thread. y: [n], of the dtype of x, or f32 where x is bf16.
inline void widen_in_host(const ConstView& x, const View& y) {
  if (x.dtype() == y.dtype()) {
    std::memcpy(y.data(), x.data(), static_cast<size_t>(x.bytes()));
    return;
  }
  bug_check(x.dtype() == DType::bf16 && y.dtype() == DType::f32, "values of ", x.dtype(),
            " do not widen to ", y.dtype());
  std::transform(x.data_as<bf16>(), x.data_as<bf16>() + x.numel(), y.data_as<float>(),
                 [](bf16 value) { return static_cast<float>(value); });
}

}  // namespace zinc::zero
