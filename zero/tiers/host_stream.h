// zero/tiers/host_stream.h: where the CPU computes on host memory.
#pragma once

#include "core/context.h"
#include "core/view.h"

namespace zinc::zero {

// The lane of a GPU's host stream in a trace.
inline constexpr int kHostStreamLane = kNumStreamRoles + 1;

// The stream of the CPU's kernels on views of host_memory(). On a GPU one of its own, made at the
// first call: its tasks run in a thread of CUDA's driver, with the context's OpenMP threads, beside
// the device's work and behind the events it waits for; the thread that issues them goes on; on a
// meta GPU with a WorkLog a stream of that. Else the compute stream.
StreamRef host_stream(Context& context);

// What is issued to `later` from now on runs after what was issued to `earlier`.
void order(StreamRef earlier, StreamRef later);

// x, in any tier that is memory, to y on the device, of any float dtype and of x's shape, both
// contiguous; issued to the compute stream. On a GPU values of the host whose dtype changes pass
// through a staging block.
void copy_to_device(const ConstView& x, const View& y, Context& context);

// The factor of an update (optim::Update) where the CPU reads it.
class HostFactor {
 public:
  explicit HostFactor(Context& context);
  // `factor`: [1] f32 on the device, as work issued to the compute stream leaves it. The result: in
  // place for work issued to host_stream(), until the next call; that stream runs what is issued
  // from now on after what was issued to the compute stream.
  ConstView take(const ConstView& factor);

 private:
  Context& context_;
  Block block_;  // on a GPU
};

}  // namespace zinc::zero
