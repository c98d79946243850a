// kernels/cuda/bulk_copy.h: the means of compute capability 9.0 to fill shared memory: boxes of
// tensors that a hardware unit copies (TMA), barriers that count arrivals and bytes (mbarrier), and
// barriers of a part of the block. PTX, or the emulator's.
//
// A box comes through the asynchronous proxy, which wgmma reads through, too. The proxy sees what
// threads write to shared memory after fence_async_proxy() and a barrier.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace zinc::kernels::cuda {

// Whether the code that is being compiled may have instructions of compute capability 9.0 alone;
// without them the functions here stop the kernel.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ZINC_HAS_SM90 1
#else
#define ZINC_HAS_SM90 0
#endif

#if !defined(ZINC_CUDA_EMULATED)
__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#else
inline uint32_t shared_address(const void* shared) { return emulator::shared_address(shared); }
#endif

// A barrier in shared memory. Its phase is over when `count` threads have arrived and all the bytes
// have come that the arrivals announced; the next phase begins at once.
struct BulkBarrier {
  uint64_t state;  // in the hardware's format
};

// One thread calls this, before fence_barriers() and a barrier of the block.
__device__ __forceinline__ void init(BulkBarrier& barrier, uint32_t count) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::init_mbarrier(&barrier.state, count);
#elif ZINC_HAS_SM90
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
#else
  __trap();
#endif
}

// The thread that initialised the barriers calls this; from then on copies may name them.
__device__ __forceinline__ void fence_barriers() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::fence_mbarrier_init();
#elif ZINC_HAS_SM90
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(BulkBarrier& barrier) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::arrive_mbarrier(&barrier.state);
#elif ZINC_HAS_SM90
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
#endif
}

// Arrives, and adds `bytes` to the bytes that the phase waits for.
__device__ __forceinline__ void arrive_expecting(BulkBarrier& barrier, uint32_t bytes) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::arrive_mbarrier_expecting(&barrier.state, bytes);
#elif ZINC_HAS_SM90
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
#endif
}

// Waits until the phase of this parity is over; phases count from 0. No waiting thread may be two
// phases behind.
__device__ __forceinline__ void wait(BulkBarrier& barrier, uint32_t parity) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::wait_mbarrier(&barrier.state, parity);
#elif ZINC_HAS_SM90
  const uint32_t address = shared_address(&barrier);
  uint32_t is_over = 0;
  while (is_over == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(is_over)
        : "r"(address), "r"(parity)
        : "memory");
  }
#endif
}

// One thread copies the box of a map of rank 4 whose first element is (c0, c1, c2, c3) to shared
// memory, aligned to 128 bytes (1024 where the map swizzles). Elements outside the tensor become
// zeros. `barrier` counts the bytes of the whole box.
__device__ __forceinline__ void copy_box(void* shared_destination, const CUtensorMap& map,
                                         BulkBarrier& barrier, int32_t c0, int32_t c1, int32_t c2,
                                         int32_t c3) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::copy_box(shared_destination, map.map, &barrier.state, {c0, c1, c2, c3});
#elif ZINC_HAS_SM90
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared_destination)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
#endif
}

__device__ __forceinline__ void fence_async_proxy() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::fence_async_proxy();
#elif ZINC_HAS_SM90
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Waits at barrier `number`, 1 to 15, of so many threads in whole warps: those that wait here and
// those that only arrive.
__device__ __forceinline__ void sync_threads(int number, int threads) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::sync_named_barrier(number, threads);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}
__device__ __forceinline__ void arrive_threads(int number, int threads) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::arrive_named_barrier(number, threads);
#else
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}

}  // namespace zinc::kernels::cuda
