// core/host_stream.h: the CPU's work on host memory: the views that its kernels take, and the
// stream on which it runs.
#pragma once

#include "core/context.h"
#include "core/view.h"

namespace zinc {

// Returns a view of the same memory on the CPU device if `view` is in the tier pinned_host, and
// `view` itself otherwise. No other function changes the tier of a view. A caller of host_memory()
// thereby decides that the CPU computes on the view.
template <class Pointer>
BasicView<Pointer> host_memory(const BasicView<Pointer>& view) {
  if (view.tier() != Tier::pinned_host) return view;
  const Device cpu{.kind = DeviceKind::cpu, .index = 0, .meta = view.device().meta};
  return {view.data(), view.dtype(), view.shape(), view.strides(), cpu, Tier::device};
}

// The lane of a GPU's host stream in a trace.
inline constexpr int kHostStreamLane = kNumStreamRoles + 1;

// The stream for CPU kernels on views from host_memory().
//
//   device                   stream
//   CPU                      the compute stream
//   GPU                      a stream of its own, made at the first call
//   meta GPU with a WorkLog  a logged stream of its own
//   other meta GPU           the compute stream
//
// On a GPU the tasks of this stream run in a thread of the CUDA driver, with the context's
// threads. They run beside the device's work, and after the events that the stream waits for. The
// issuing thread does not wait for them.
StreamRef host_stream(Context& context);

}  // namespace zinc
