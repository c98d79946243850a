// kernels/cuda/launch.h: the only way in which zinc starts a CUDA kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/launch_times.h"
#include "core/stream.h"

namespace zinc::kernels::cuda {

// Note [Opting in to shared memory]
// CUDA gives a block 48 KiB of shared memory, static and dynamic bytes together, unless its kernel
// has opted in to more on that device. How many static bytes a kernel has, the compiler decides: it
// pads them to the alignment of the dynamic part. So a kernel opts in at its first launch with
// dynamic memory, whatever the size, and to all that the device can give beside the static bytes:
// contexts that share a device then set one value, and a later, larger launch needs no other call.

// Kernels that have opted in on the device of a context, which holds this in a slot.
struct OptedInKernels {
  std::unordered_set<const void*> kernels;
};

inline cudaError_t opt_in_to_shared_memory(const void* kernel) {
  int device = 0, most = 0;
  cudaFuncAttributes use{};
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&use, kernel);
  if (status != cudaSuccess) return status;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most - static_cast<int>(use.sharedSizeBytes));
}

// Once per kernel and context.
inline cudaError_t make_room_in_shared_memory(const void* kernel, size_t shared_bytes) {
  if (shared_bytes == 0) return cudaSuccess;
  Context* context = Context::current_or_null();
  if (context == nullptr) return opt_in_to_shared_memory(kernel);
  auto& opted_in = context->slot<OptedInKernels>().kernels;
  if (opted_in.contains(kernel)) return cudaSuccess;
  const cudaError_t status = opt_in_to_shared_memory(kernel);
  if (status == cudaSuccess) opted_in.insert(kernel);
  return status;
}

[[noreturn]] inline void throw_refused_launch(const void* kernel, dim3 grid, dim3 block,
                                              size_t shared_bytes, const std::string& why) {
  cudaFuncAttributes use{};
  if (cudaFuncGetAttributes(&use, kernel) != cudaSuccess) use = {};
  cudaGetLastError();  // an error that was reported is not found again by the next call
  throw CudaError(str("kernel launch on a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
                      " blocks of ", block.x, " x ", block.y, " x ", block.z, " threads with ",
                      use.sharedSizeBytes, " static and ", shared_bytes,
                      " dynamic bytes of shared memory and ", use.numRegs,
                      " registers a thread: ", why));
}

// Queues `kernel` on `stream`; the arguments are converted to its parameters now. Asynchronous.
// `shared_bytes` is the dynamic shared memory of a block. Throws CudaError where CUDA refuses the
// launch. On the emulator an error of a kernel is an emulator::Fault when the stream runs it.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            StreamRef stream, Args&&... args) {
  static_assert(sizeof...(Parameters) == sizeof...(Args));
  const auto* const entry = reinterpret_cast<const void*>(kernel);
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Args>(args)...);
  cudaError_t status = make_room_in_shared_memory(entry, shared_bytes);
#if defined(ZINC_CUDA_EMULATED)
  const emulator::Launch shape = emulator::launch_of(entry, grid, block, shared_bytes);
  const std::string why =
      status == cudaSuccess ? emulator::why_refused(shape) : cudaGetErrorString(status);
  if (!why.empty()) throw_refused_launch(entry, grid, block, shared_bytes, why);
  timed_launch(
      stream, [&] { return name_of_cuda_kernel(entry); },
      [&] {
        stream.submit("cuda kernel",
                      [=] { emulator::run_grid(shape, [&] { std::apply(kernel, values); }); });
      });
#else
  timed_launch(
      stream, [&] { return name_of_cuda_kernel(entry); },
      [&] {
        std::apply(
            [&](auto&... value) {
              void* pointers[] = {static_cast<void*>(&value)..., nullptr};
              if (status == cudaSuccess) {
                status = cudaLaunchKernel(entry, grid, block, pointers, shared_bytes,
                                          static_cast<cudaStream_t>(stream->native()));
              }
            },
            values);
      });
  if (status != cudaSuccess) {
    throw_refused_launch(entry, grid, block, shared_bytes, cudaGetErrorString(status));
  }
#endif
}

// Calls `body.template operator()<T>()` for f32, bf16 and f16. Throws InvalidArgument for f64,
// which is the CPU's alone.
template <class Body>
void dispatch_device_float(const char* op, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    case DType::f16:
      return body.template operator()<f16>();
    default:
      break;
  }
  require(false, op, ": CUDA kernels take f32, bf16 and f16, not ", dtype,
          "; compute in f64 on the CPU");
}

}  // namespace zinc::kernels::cuda
