// tests/emulator/include/cuda_runtime.h: stands in for CUDA's header of this name, so that .cu
// files compile with a C++ compiler and run on the emulator (tests/emulator/grid.h). It offers what
// zinc's kernels use and nothing more; what it leaves out on purpose (atomics on floats) does not
// compile.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "tests/emulator/bulk_copy.h"
#include "tests/emulator/functions.h"
#include "tests/emulator/grid.h"
#include "tests/emulator/include/cuda_runtime_api.h"
#include "tests/emulator/tensor_core.h"
#include "tests/emulator/warpgroup.h"

#define ZINC_CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

using dim3 = zinc::emulator::Size3;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};

#define threadIdx (::zinc::emulator::ids().thread)
#define blockIdx (::zinc::emulator::ids().block)
#define blockDim (::zinc::emulator::ids().block_size)
#define gridDim (::zinc::emulator::ids().grid_size)
inline constexpr int warpSize = zinc::emulator::kWarpSize;

// --- Barriers ------------------------------------------------------------------------------------

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  zinc::emulator::block_barrier(where, false);
}
inline int __syncthreads_count(int predicate,
                               std::source_location where = std::source_location::current()) {
  return zinc::emulator::block_barrier(where, predicate != 0);
}
inline int __syncthreads_or(int predicate,
                            std::source_location where = std::source_location::current()) {
  return zinc::emulator::block_barrier(where, predicate != 0) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate,
                             std::source_location where = std::source_location::current()) {
  return zinc::emulator::block_barrier(where, predicate == 0) == 0 ? 1 : 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu,
                       std::source_location where = std::source_location::current()) {
  zinc::emulator::warp_collective("__syncwarp", where, mask, nullptr, nullptr,
                                  [](const void* const*, void* const*, uint32_t) {});
}

// --- Shuffles, votes and reductions of a warp
// ------------------------------------------------------

namespace zinc::emulator {

template <class T>
struct Shuffled {
  T value;
  int source;  // lane that the caller reads
};

template <class T>
void combine_shuffle(const void* const* in, void* const* out, uint32_t mask) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const int source = static_cast<const Shuffled<T>*>(in[lane])->source;
    auto* result = static_cast<T*>(out[lane]);
    if ((mask >> source & 1u) != 0) {
      *result = static_cast<const Shuffled<T>*>(in[source])->value;
    } else {
      std::memset(result, 0xff, sizeof(T));  // a lane that does not take part: undefined
    }
  }
}

template <class T>
T shuffle(const char* what, std::source_location where, uint32_t mask, T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const Shuffled<T> in{value, source};
  T out{};
  warp_collective(what, where, mask, &in, &out, &combine_shuffle<T>);
  return out;
}

inline uint32_t ballot(const char* what, std::source_location where, uint32_t mask, int predicate) {
  uint32_t out = 0;
  warp_collective(what, where, mask, &predicate, &out,
                  [](const void* const* in, void* const* results, uint32_t lanes) {
                    uint32_t bits = 0;
                    for (int lane = 0; lane < kWarpSize; ++lane) {
                      if ((lanes >> lane & 1u) == 0) continue;
                      if (*static_cast<const int*>(in[lane]) != 0) bits |= 1u << lane;
                    }
                    for (int lane = 0; lane < kWarpSize; ++lane) {
                      if ((lanes >> lane & 1u) != 0) *static_cast<uint32_t*>(results[lane]) = bits;
                    }
                  });
  return out;
}

// `Fold` adds the second value to the first. Integers only, as in CUDA.
template <class T, void Fold(T&, T)>
T reduce(const char* what, std::source_location where, uint32_t mask, T value) {
  T out{};
  warp_collective(what, where, mask, &value, &out,
                  [](const void* const* in, void* const* results, uint32_t lanes) {
                    T sum{};
                    bool first = true;
                    for (int lane = 0; lane < kWarpSize; ++lane) {
                      if ((lanes >> lane & 1u) == 0) continue;
                      const T next = *static_cast<const T*>(in[lane]);
                      if (first) {
                        sum = next;
                      } else {
                        Fold(sum, next);
                      }
                      first = false;
                    }
                    for (int lane = 0; lane < kWarpSize; ++lane) {
                      if ((lanes >> lane & 1u) != 0) *static_cast<T*>(results[lane]) = sum;
                    }
                  });
  return out;
}

template <class T>
void fold_add(T& sum, T next) {
  sum = static_cast<T>(static_cast<std::make_unsigned_t<T>>(sum) +
                       static_cast<std::make_unsigned_t<T>>(next));
}
template <class T>
void fold_max(T& sum, T next) {
  if (next > sum) sum = next;
}
template <class T>
void fold_min(T& sum, T next) {
  if (next < sum) sum = next;
}

}  // namespace zinc::emulator

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  const int lane = zinc::emulator::ids().lane;
  return zinc::emulator::shuffle("__shfl_sync", where, mask, value,
                                 (lane & ~(width - 1)) + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const int lane = zinc::emulator::ids().lane;
  const int source = lane ^ lane_mask;
  return zinc::emulator::shuffle("__shfl_xor_sync", where, mask, value,
                                 (source & ~(width - 1)) > (lane | (width - 1)) ? lane : source);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                   std::source_location where = std::source_location::current()) {
  const int lane = zinc::emulator::ids().lane;
  const int source = lane + static_cast<int>(delta);
  return zinc::emulator::shuffle(
      "__shfl_down_sync", where, mask, value,
      (lane & (width - 1)) + static_cast<int>(delta) >= width ? lane : source);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const int lane = zinc::emulator::ids().lane;
  const int source = lane - static_cast<int>(delta);
  return zinc::emulator::shuffle("__shfl_up_sync", where, mask, value,
                                 (lane & (width - 1)) < static_cast<int>(delta) ? lane : source);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  return zinc::emulator::ballot("__ballot_sync", where, mask, predicate);
}
inline int __any_sync(uint32_t mask, int predicate,
                      std::source_location where = std::source_location::current()) {
  return zinc::emulator::ballot("__any_sync", where, mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(uint32_t mask, int predicate,
                      std::source_location where = std::source_location::current()) {
  return zinc::emulator::ballot("__all_sync", where, mask, predicate) == mask ? 1 : 0;
}
template <class T>
T __reduce_add_sync(uint32_t mask, T value,
                    std::source_location where = std::source_location::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return zinc::emulator::reduce<T, zinc::emulator::fold_add<T>>("__reduce_add_sync", where, mask,
                                                                value);
}
template <class T>
T __reduce_max_sync(uint32_t mask, T value,
                    std::source_location where = std::source_location::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return zinc::emulator::reduce<T, zinc::emulator::fold_max<T>>("__reduce_max_sync", where, mask,
                                                                value);
}
template <class T>
T __reduce_min_sync(uint32_t mask, T value,
                    std::source_location where = std::source_location::current()) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return zinc::emulator::reduce<T, zinc::emulator::fold_min<T>>("__reduce_min_sync", where, mask,
                                                                value);
}

// --- Atomics: integers only
// ------------------------------------------------------------------------

template <class T>
concept EmulatedAtomic = std::is_integral_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

template <EmulatedAtomic T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomic T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomic T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <EmulatedAtomic T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value < old && !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
  return old;
}
template <EmulatedAtomic T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value > old && !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
  return old;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
