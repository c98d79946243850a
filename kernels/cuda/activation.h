// kernels/cuda/activation.h: GELU, SiLU and their derivatives in f32, without the cancellation of
// 1 + tanh(u) and 1 + erf(z).
//
// T is the type that the result is rounded to. For 16 bits the special function unit is exact
// enough (relative error |x| 2^-23), and a library's exponential and division would take longer
// than memory does.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/special_function.h"

namespace zinc::kernels::cuda {

// s = 1 / (1 + exp(-x)) and its derivative s (1 - s).
template <class T>
struct Sigmoid {
  static constexpr bool kFast = sizeof(T) == 2;
  float value, slope;
  explicit __device__ __forceinline__ Sigmoid(float x) {
    const float e = kFast ? fast_exp(-fabsf(x)) : expf(-fabsf(x));
    const float inverse = kFast ? fast_reciprocal(1.0f + e) : 1.0f / (1.0f + e);
    const float small = e * inverse;
    value = x < 0.0f ? small : inverse;
    slope = small * inverse;
  }
};

template <class T>
struct Silu {
  static __device__ __forceinline__ float value(float x) { return x * Sigmoid<T>(x).value; }
  static __device__ __forceinline__ float slope(float x) {
    const Sigmoid<T> s(x);
    return fmaf(x, s.slope, s.value);
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct GeluTanh {
  static constexpr float kTwoRoots = 1.5957691216057308f;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715f;

  static __device__ __forceinline__ float value(float x) {
    return x * Sigmoid<T>(fmaf(x * x, kTwoRoots * kCubic, kTwoRoots) * x).value;
  }
  static __device__ __forceinline__ float slope(float x) {
    const float square = x * x;
    const Sigmoid<T> s(fmaf(square, kTwoRoots * kCubic, kTwoRoots) * x);
    // The derivative of the sigmoid is 0 for large x, where x * du may overflow.
    const float du = fmaf(square, 3.0f * kTwoRoots * kCubic, kTwoRoots);
    return fabsf(x) > 1e6f ? s.value : s.value + s.slope * (x * du);
  }
};

// x Phi(x), Phi(x) = erfc(-x / sqrt(2)) / 2: the standard normal distribution function.
struct GeluErf {
  static __device__ __forceinline__ float distribution(float x) {
    return 0.5f * erfcf(-0.70710678f * x);
  }
  static __device__ __forceinline__ float value(float x) { return x * distribution(x); }
  static __device__ __forceinline__ float slope(float x) {
    const float bounded = fminf(fabsf(x), 19.0f);
    const float density = 0.3989422804014327f * expf(-0.5f * bounded * bounded);
    return fabsf(x) > 1e6f ? distribution(x) : fmaf(x, density, distribution(x));
  }
};

}  // namespace zinc::kernels::cuda
