// kernels/launch.h: the switch on the device that every dispatcher ends in.
#pragma once

#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/stream.h"

namespace zinc::kernels {

// Queues `on_cpu` on a CPU device; does nothing on a meta device. `label`, a string literal, names
// the work in the trace and starts the error's message.
template <class OnCpu>
void run_on_device(const char* label, Device device, StreamRef stream, OnCpu&& on_cpu) {
  if (device.meta) return;
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
