// kernels/cuda/pack.h: 16-byte accesses to arrays of f32, bf16 and f16.
//
// A pack is the 16 / sizeof(T) elements that begin at a multiple of that number. Which elements a
// thread handles is stated in packs whether or not memory is aligned, so that the order of sums
// does not depend on it: only how a pack is read does.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"

namespace zinc::kernels::cuda {

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Pack {
  T at[kPack<T>];
};

inline int64_t packs_of(int64_t n, int64_t pack) { return (n + pack - 1) / pack; }

// True where rows that begin at `data`, `stride` elements apart, can be read by packs.
inline bool is_aligned_for_packs(const ConstView& view, int64_t stride) {
  return !view || (reinterpret_cast<uintptr_t>(view.data()) % 16 == 0 &&
                   stride * size_of(view.dtype()) % 16 == 0);
}

template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::require_aligned(from, 16, "16-byte load");
#endif
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::require_aligned(to, 16, "16-byte store");
#endif
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

// Pack `index` of the `n` elements at `from`; elements beyond n are `T()` in a load and are left
// alone in a store. `aligned` is the same for all threads of a launch.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from, int64_t index, int64_t n,
                                             bool aligned) {
  const int64_t first = index * kPack<T>;
  if (aligned && first + kPack<T> <= n) return load_pack(from + first);
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) pack.at[i] = first + i < n ? from[first + i] : T();
  return pack;
}
template <class T>
__device__ __forceinline__ void store_pack(T* to, int64_t index, int64_t n, bool aligned,
                                           const Pack<T>& pack) {
  const int64_t first = index * kPack<T>;
  if (aligned && first + kPack<T> <= n) return store_pack(to + first, pack);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    if (first + i < n) to[first + i] = pack.at[i];
  }
}

}  // namespace zinc::kernels::cuda
