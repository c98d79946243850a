// zero/tiers/host_stream.h: the CPU's work on host memory: the views that its kernels take, and the
// stream on which it runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/context.h"
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
// On a GPU the tasks of this stream run in a thread of the CUDA driver, with the context's OpenMP
// threads. They run beside the device's work, and after the events that the stream waits for. The
// issuing thread does not wait for them.
StreamRef host_stream(Context& context);

// Work that is issued to `later` from now on runs after all work that was issued to `earlier`.
void order(StreamRef earlier, StreamRef later);

// Copies x to y on the compute stream. x: any memory tier. y: on the device, x's shape, any float
// dtype. Both contiguous. On a GPU, host values that change their dtype pass through a staging
// block on the device.
void copy_to_device(const ConstView& x, const View& y, Context& context);

// The factor of an update (optim::Update) in memory that the CPU reads.
class HostFactor {
 public:
  explicit HostFactor(Context& context);
  // `factor`: [1] f32 on the device, as work issued to the compute stream leaves it. Returns [1]
  // f32 for work on host_stream(), valid until the next call. On a GPU, host_stream() runs all
  // later work after the work that was issued to the compute stream.
  ConstView take(const ConstView& factor);

 private:
  Context& context_;
  Block block_;  // [1] f32 in pinned memory, on a GPU only
};

}  // namespace zinc::zero
