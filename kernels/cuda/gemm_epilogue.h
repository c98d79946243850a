// kernels/cuda/gemm_epilogue.h: the epilogue of a sum of products, an element or a pack of a row at
// a time: Note [Rounding of the pre-activation] in kernels/gemm.h.
#pragma once

#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/matrix_product.h"

namespace zinc::kernels::cuda {

template <class T>
__device__ __forceinline__ float value_of(Activation kind, float z) {
  switch (kind) {
    case Activation::gelu_tanh:
      return GeluTanh<T>::value(z);
    case Activation::gelu_erf:
      return GeluErf::value(z);
    case Activation::silu:
      return Silu<T>::value(z);
    case Activation::none:
      break;
  }
  return z;
}

template <class T>
__device__ __forceinline__ float derivative_of(Activation kind, float x) {
  switch (kind) {
    case Activation::gelu_tanh:
      return GeluTanh<T>::derivative(x);
    case Activation::gelu_erf:
      return GeluErf::derivative(x);
    case Activation::silu:
      return Silu<T>::derivative(x);
    case Activation::none:
      break;
  }
  return 1.0f;
}

// The activation of z, rounded; with activation_input, z times the derivative at `x`.
template <class TC>
__device__ __forceinline__ float activated(const MatrixProduct& p, TC z, float x) {
  const auto value = static_cast<float>(z);
  if (p.x != nullptr) return value * derivative_of<TC>(p.activation, x);
  return value_of<TC>(p.activation, value);
}

// z of a pack of row i, columns from `first` on, whose alpha op(A) op(B) is `sum`.
template <class T, class TC, int kCount, class Aligned>
__device__ __forceinline__ Pack<TC, kCount> rounded_sum(const MatrixProduct& p,
                                                        float (&sum)[kCount], int64_t i,
                                                        int64_t first, Aligned aligned) {
  if (p.beta != 0.0) {
    float before[kCount];
    load_floats(static_cast<const TC*>(p.addend) + i * p.addend_stride, first, p.n, aligned,
                before);
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] += static_cast<float>(p.beta) * before[e];
  }
  if (p.bias != nullptr) {
    float bias[kCount];
    if (p.bias_dtype == DType::f32) {
      load_floats(static_cast<const float*>(p.bias), first, p.n, aligned, bias);
    } else {
      load_floats(static_cast<const T*>(p.bias), first, p.n, aligned, bias);
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) sum[e] += bias[e];
  }
  Pack<TC, kCount> z;
#pragma unroll
  for (int e = 0; e < kCount; ++e) z.at[e] = TC(sum[e]);
  return z;
}

// The gradients of activation(x) * u, computed as swiglu_backward() computes them.
template <class TC>
__device__ __forceinline__ float of_input(const MatrixProduct& p, float z, float x, float u) {
  return z * u * derivative_of<TC>(p.activation, x);
}
template <class TC>
__device__ __forceinline__ float of_factor(const MatrixProduct& p, float z, float x) {
  return z * value_of<TC>(p.activation, x);
}

// Stores C, and the gradient of u where there is a factor, from z.
template <class TC, int kCount, class Aligned>
__device__ __forceinline__ void activate(const MatrixProduct& p, const Pack<TC, kCount>& z,
                                         int64_t i, int64_t first, Aligned aligned) {
  float x[kCount] = {}, values[kCount];
  if (p.x != nullptr) {
    load_floats(static_cast<const TC*>(p.x) + i * p.x_stride, first, p.n, aligned, x);
  }
  if (p.factor != nullptr) {
    float u[kCount];
    load_floats(static_cast<const TC*>(p.factor) + i * p.factor_stride, first, p.n, aligned, u);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const auto at = static_cast<float>(z.at[e]);
      values[e] = of_input<TC>(p, at, x[e], u[e]);
      u[e] = of_factor<TC>(p, at, x[e]);
    }
    store_rounded(static_cast<TC*>(p.c) + i * p.ldc, first, p.n, aligned, values);
    store_rounded(static_cast<TC*>(p.factor_gradient) + i * p.factor_gradient_stride, first, p.n,
                  aligned, u);
    return;
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) values[e] = activated(p, z.at[e], x[e]);
  store_rounded(static_cast<TC*>(p.c) + i * p.ldc, first, p.n, aligned, values);
}

// Stores, or adds, sum i over k.
template <class T>
__device__ __forceinline__ void store_sum(const MatrixProduct& p, int64_t i, float sum) {
  if (p.sums_dtype == DType::f32) {
    auto* at = static_cast<float*>(p.sums) + i;
    *at = p.adds_to_sums ? *at + sum : sum;
  } else {
    auto* at = static_cast<T*>(p.sums) + i;
    *at = T(p.adds_to_sums ? static_cast<float>(*at) + sum : sum);
  }
}

template <class TC, int kCount, class Aligned>
__device__ __forceinline__ void store_pre_activation(const MatrixProduct& p,
                                                     const Pack<TC, kCount>& z, int64_t i,
                                                     int64_t first, Aligned aligned) {
  if (p.pre == nullptr) return;
  store_floats(static_cast<TC*>(p.pre) + i * p.pre_stride, first, p.n, aligned, z.at);
}

}  // namespace zinc::kernels::cuda
