// kernels/cuda/special_function.h: functions that the hardware has an instruction for, where no
// bits are promised and results are rounded to 16 bits, or are sums of many.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/float16.h"
#include "kernels/cuda/pack.h"

namespace zinc::kernels::cuda {

// 2^x: relative error up to 2^-22, 0 where the result is subnormal.
__device__ __forceinline__ float fast_exp2(float x) {
#if defined(ZINC_CUDA_EMULATED)
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// e^x: the error of fast_exp2, and |x| 2^-24 of the product.
__device__ __forceinline__ float fast_exp(float x) {
  return fast_exp2(x * 1.44269504088896340736f);
}

// 1 / x, one unit in the last place; 0 where x is beyond 2^126.
__device__ __forceinline__ float fast_reciprocal(float x) {
#if defined(ZINC_CUDA_EMULATED)
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// tanh(x), without a branch: absolute error 2^-21.
__device__ __forceinline__ float fast_tanh(float x) {
  const float e = fast_exp(-2.0f * fabsf(x));
  return copysignf((1.0f - e) * fast_reciprocal(1.0f + e), x);
}

// Both rounded to T, to nearest even.
template <class T>
__device__ __forceinline__ uint32_t pair_of(float low, float high) {
#if defined(ZINC_CUDA_EMULATED)
  return uint32_t{T(low).bits} | uint32_t{T(high).bits} << 16;
#else
  uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#endif
}

// All rounded to T. Four instructions for eight values, where the conversions of core/float16.h,
// which keep the bits of a NaN too, take eight for one.
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> rounded_pack(const float (&values)[kCount]) {
  if constexpr (sizeof(T) == 2) {
    struct Words {
      uint32_t at[kCount / 2];
    } words;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      words.at[i] = pair_of<T>(values[2 * i], values[2 * i + 1]);
    }
    return std::bit_cast<Pack<T, kCount>>(words);
  } else {
    Pack<T, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.at[i] = values[i];
    return pack;
  }
}

}  // namespace zinc::kernels::cuda
