// kernels/cuda/async_copy.h: copies from global to shared memory that run beside the thread
// (cp.async), in groups that are committed and waited for in order.
//
// After the wait, the thread that copied may read the data; other threads need a barrier besides.
// Every copy is waited for before the kernel ends.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zinc::kernels::cuda {

// 16 bytes, both addresses aligned to 16; past L1. With `valid` false the destination gets zeros
// and `source` is not read.
__device__ __forceinline__ void copy_async_16(void* shared_destination, const void* source,
                                              bool valid = true) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::copy_async(shared_destination, source, 16, valid ? 16 : 0);
#else
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_destination));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
#endif
}

__device__ __forceinline__ void commit_copies() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the `kPending` newest groups of this thread are on their way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::wait_copies(kPending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace zinc::kernels::cuda
