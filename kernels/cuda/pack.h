// kernels/cuda/pack.h: 16-byte accesses to arrays of f32, bf16 and f16.
//
// A pack is the 16 / sizeof(T) elements that begin at a multiple of that number. Which elements a
// thread handles is stated in packs whether or not memory is aligned, so that the order of sums
// does not depend on it: only how a pack is read does.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/host_device.h"
#include "core/view.h"

namespace zinc::kernels::cuda {

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// A shorter pack is for kernels that handle as many elements of a wider type beside it.
template <class T, int kCount = kPack<T>>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// Takes the place of the bool `aligned`: memory is known to be aligned at compile time, and no pack
// is cut off. The code for tails takes three times the registers.
struct WholePacks {
  ZINC_HOST_DEVICE constexpr operator bool() const { return true; }
};

// Calls body(WholePacks{}) or body(aligned), for rows of n elements of which a thread takes
// `count`.
template <class Body>
void dispatch_whole_packs(int64_t n, int64_t count, bool aligned, Body&& body) {
  if (aligned && n % count == 0) return body(WholePacks{});
  body(aligned);
}

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
template <class T, int kCount>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, kCount>& pack) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::require_aligned(to, sizeof(pack), "16-byte store");
#endif
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

// Elements [first, first + kCount) of the `n` at `from`; those beyond n are `T()` in a load and are
// left alone in a store. `first` is a multiple of kCount. `aligned`, a bool or WholePacks, is the
// same for all threads of a launch.
template <int kCount, class T, class Aligned>
__device__ __forceinline__ Pack<T, kCount> load_part(const T* from, int64_t first, int64_t n,
                                                     Aligned aligned) {
  using Part = Pack<T, kCount>;
  if (aligned && first + kCount <= n) {
#if defined(ZINC_CUDA_EMULATED)
    emulator::require_aligned(from + first, sizeof(Part), "load of a pack");
#endif
    return *reinterpret_cast<const Part*>(from + first);
  }
  Part pack{};
  if constexpr (!std::is_same_v<Aligned, WholePacks>) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.at[i] = first + i < n ? from[first + i] : T();
  }
  return pack;
}
template <class T, int kCount, class Aligned>
__device__ __forceinline__ void store_part(T* to, int64_t first, int64_t n, Aligned aligned,
                                           const Pack<T, kCount>& pack) {
  if (aligned && first + kCount <= n) return store_pack(to + first, pack);
  if constexpr (!std::is_same_v<Aligned, WholePacks>) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < n) to[first + i] = pack.at[i];
    }
  }
}

// Pack `index` of the n elements.
template <class T, class Aligned>
__device__ __forceinline__ Pack<T> load_pack(const T* from, int64_t index, int64_t n,
                                             Aligned aligned) {
  return load_part<kPack<T>>(from, index * kPack<T>, n, aligned);
}
template <class T, class Aligned>
__device__ __forceinline__ void store_pack(T* to, int64_t index, int64_t n, Aligned aligned,
                                           const Pack<T>& pack) {
  store_part(to, index * kPack<T>, n, aligned, pack);
}

}  // namespace zinc::kernels::cuda
