// kernels/cuda/launch.h: the only way in which zinc starts a CUDA kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"
#include "core/stream.h"

namespace zinc::kernels::cuda {

#if !defined(ZINC_CUDA_EMULATED)
// Throws CudaError where CUDA refuses the launch.
inline void launch_erased(const void* kernel, dim3 grid, dim3 block, void** args,
                          size_t shared_bytes, cudaStream_t stream) {
  constexpr size_t kDefaultSharedBytes = 48 * 1024;
  cudaError_t status = cudaSuccess;
  if (shared_bytes > kDefaultSharedBytes) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes));
  }
  if (status == cudaSuccess) {
    status = cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream);
  }
  if (status != cudaSuccess) {
    throw CudaError(concat("kernel launch on a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
                           " blocks of ", block.x, " x ", block.y, " x ", block.z, " threads with ",
                           shared_bytes, " bytes of shared memory: ", cudaGetErrorString(status)));
  }
}
#endif

// Queues `kernel` on `stream`; the arguments are converted to its parameters now. Asynchronous.
// `shared_bytes` is the dynamic shared memory of a block. Throws CudaError, or on the emulator,
// when the stream runs the work, emulator::Fault.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            StreamRef stream, Args&&... args) {
  static_assert(sizeof...(Parameters) == sizeof...(Args));
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Args>(args)...);
#if defined(ZINC_CUDA_EMULATED)
  stream.submit("cuda kernel", [=] {
    emulator::run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
  });
#else
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        launch_erased(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes,
                      static_cast<cudaStream_t>(stream->native()));
      },
      values);
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
