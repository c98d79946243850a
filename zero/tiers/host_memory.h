// zero/tiers/host_memory.h: memory of the host tier as the CPU's kernels take it.
#pragma once

#include "core/view.h"

namespace zinc::zero {

// A view of the tier pinned_host becomes one that the CPU computes on; any other stays as it is.
// Whoever uses it has chosen to compute on the host: nothing else turns one tier into another.
template <class Pointer>
BasicView<Pointer> host_memory(const BasicView<Pointer>& view) {
  if (view.tier() != Tier::pinned_host) return view;
  const Device cpu{.kind = DeviceKind::cpu, .index = 0, .meta = view.device().meta};
  return {view.data(), view.dtype(), view.shape(), view.strides(), cpu, Tier::device};
}

}  // namespace zinc::zero
