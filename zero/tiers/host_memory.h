// zero/tiers/host_memory.h: a view of host memory in the form that the CPU's kernels take.
#pragma once

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

}  // namespace zinc::zero
