// kernels/launch.h: the switch on the device that every dispatcher ends in.
#pragma once

#include <type_traits>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/stream.h"
#include "core/work_log.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// Whether this build has the CUDA kernels, for a GPU or for the emulator. The dispatchers alone are
// compiled with the definition.
#if defined(ZINC_HAS_CUDA_KERNELS)
inline constexpr bool kHasCudaKernels = true;
#else
inline constexpr bool kHasCudaKernels = false;
#endif

// Stands for a CUDA launcher that has not been written.
struct NoKernel {
  void operator()() const {}
};

// A part of an op without arguments of its own passes its cost directly.
inline const Cost& cost(const Cost& known) { return known; }

// Tells the planner's clock the cost of a kernel. Called on a meta device, instead of the kernel.
inline void note_kernel(const char* label, const Cost& cost, Device device, StreamRef stream,
                        WorkKind kind = WorkKind::other, DType dtype = DType::f32) {
  stream->note(label, {.kind = kind,
                       .place = device.is_cpu() ? WorkPlace::host : WorkPlace::device,
                       .dtype = dtype,
                       .bytes_read = cost.bytes_read,
                       .bytes_written = cost.bytes_written,
                       .flops = cost.flops});
}

// Queues `on_cpu` on a CPU device; calls `on_cuda`, which queues launches on `stream` itself, on a
// CUDA device; on a meta device notes cost(args). `label`, a string literal, names the work in the
// trace and starts the error's message. Builds without CUDA do not refer to what `on_cuda` calls.
template <class Args, class OnCpu, class OnCuda = NoKernel>
void run_on_device(const char* label, const Args& args, Device device, StreamRef stream,
                   OnCpu&& on_cpu, [[maybe_unused]] OnCuda&& on_cuda = {}) {
  if (device.meta) {
    note_kernel(label, cost(args), device, stream);
    return;
  }
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
