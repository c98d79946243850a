// kernels/cuda/shared.h: shared memory of a block, the same for nvcc and the emulator.
#pragma once

#include <cuda_runtime.h>

// Declares a shared variable in a kernel: ZINC_SHARED(float, sums, [32]); ZINC_SHARED(int, count).
// Trivial types only; not initialised.
#if defined(ZINC_CUDA_EMULATED)
#define ZINC_SHARED(type, name, ...)                                                            \
  typedef type name##_shared_type __VA_ARGS__;                                                  \
  static const char name##_site = 0;                                                            \
  name##_shared_type& name = *static_cast<name##_shared_type*>(::zinc::emulator::static_shared( \
      &name##_site, sizeof(name##_shared_type), alignof(name##_shared_type)))
#else
#define ZINC_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
#endif

namespace zinc::kernels::cuda {

// The dynamic shared memory that the launch asked for.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#if defined(ZINC_CUDA_EMULATED)
  return static_cast<T*>(emulator::dynamic_shared());
#else
  extern __shared__ __align__(1024) unsigned char zinc_dynamic_shared[];
  return reinterpret_cast<T*>(zinc_dynamic_shared);
#endif
}

}  // namespace zinc::kernels::cuda
