// kernels/launch.h: the switch on the device that every dispatcher ends in.
#pragma once

#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/stream.h"
#include "core/work_log.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// A part of an op that has no arguments of its own brings its cost.
inline const Cost& cost(const Cost& known) { return known; }

// What a kernel would take, for the planner's clock. On a meta device, instead of running it.
inline void note_kernel(const char* label, const Cost& cost, StreamRef stream,
                        WorkKind kind = WorkKind::other, DType dtype = DType::f32) {
  stream->note(label, {.kind = kind,
                       .dtype = dtype,
                       .bytes_read = cost.bytes_read,
                       .bytes_written = cost.bytes_written,
                       .flops = cost.flops});
}

// Queues `on_cpu` on a CPU device; on a meta device notes cost(args). `label`, a string literal,
// names the work in the trace and starts the error's message.
template <class Args, class OnCpu>
void run_on_device(const char* label, const Args& args, Device device, StreamRef stream,
                   OnCpu&& on_cpu) {
  if (device.meta) {
    note_kernel(label, cost(args), stream);
    return;
  }
  switch (device.kind) {
    case DeviceKind::cpu:
      stream.submit(label, std::forward<OnCpu>(on_cpu));
      return;
    case DeviceKind::cuda:
      break;
  }
  require(false, label, ": this build has no kernel for ", device);
}

}  // namespace zinc::kernels
