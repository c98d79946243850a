// kernels/launch.h: the switch on the device that every dispatcher ends in.
#pragma once

#include <type_traits>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/stream.h"

namespace zinc::kernels {

// Whether this build has the CUDA kernels, for a GPU or for the emulator. The dispatchers' library
// alone defines it.
#if defined(ZINC_HAS_CUDA_KERNELS)
inline constexpr bool kHasCudaKernels = true;
#else
inline constexpr bool kHasCudaKernels = false;
#endif

// Stands for a CUDA launcher that has not been written.
struct NoKernel {
  void operator()() const {}
};

// Queues `on_cpu` on a CPU device; calls `on_cuda`, which queues launches on `stream` itself, on a
// CUDA device; does nothing on a meta device. `label`, a string literal, names the work in the
// trace and starts the error's message. Builds without CUDA do not refer to what `on_cuda` calls.
template <class OnCpu, class OnCuda = NoKernel>
void run_on_device(const char* label, Device device, StreamRef stream, OnCpu&& on_cpu,
                   OnCuda&& on_cuda = {}) {
  if (device.meta) return;
  switch (device.kind) {
    case DeviceKind::cpu:
      stream.submit(label, std::forward<OnCpu>(on_cpu));
      return;
    case DeviceKind::cuda:
      if constexpr (kHasCudaKernels && !std::is_same_v<std::remove_cvref_t<OnCuda>, NoKernel>) {
        on_cuda();
        return;
      }
      break;
  }
  require(false, label, ": this build has no kernel for ", device);
}

}  // namespace zinc::kernels
