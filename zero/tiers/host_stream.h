// zero/tiers/host_stream.h: the stream of the CPU's work on host memory.
#pragma once

#include "core/context.h"
#include "core/view.h"

namespace zinc::zero {

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
