// kernels/cuda/number.h: an f32 of a thread as a number, with the vocabulary of
// kernels/elementwise_table.h. T is the type that results are rounded to: for 16 bits the special
// function unit is exact enough where activation.h says so.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/cuda/activation.h"
#include "kernels/elementwise_table.h"

namespace zinc::kernels::cuda {

template <class T>
struct Number {
  float value;
  explicit __device__ __forceinline__ Number(float v) : value(v) {}
  explicit __device__ __forceinline__ Number(double v) : value(static_cast<float>(v)) {}
  explicit __device__ __forceinline__ Number(int v) : value(static_cast<float>(v)) {}

#define ZINC_OPERATOR(sign)                                                    \
  friend __device__ __forceinline__ Number operator sign(Number a, Number b) { \
    return Number(a.value sign b.value);                                       \
  }
  ZINC_OPERATOR(+)
  ZINC_OPERATOR(-)
  ZINC_OPERATOR(*)
  ZINC_OPERATOR(/)
#undef ZINC_OPERATOR
#define ZINC_COMPARISON(sign)                                                \
  friend __device__ __forceinline__ bool operator sign(Number a, Number b) { \
    return a.value sign b.value;                                             \
  }
  ZINC_COMPARISON(==)
  ZINC_COMPARISON(!=)
  ZINC_COMPARISON(<)
  ZINC_COMPARISON(<=)
  ZINC_COMPARISON(>)
  ZINC_COMPARISON(>=)
#undef ZINC_COMPARISON
  friend __device__ __forceinline__ Number operator-(Number a) { return Number(-a.value); }

  friend __device__ __forceinline__ Number select(bool mask, Number a, Number b) {
    return mask ? a : b;
  }
  friend __device__ __forceinline__ Number fma(Number a, Number b, Number c) {
    return Number(fmaf(a.value, b.value, c.value));
  }
  friend __device__ __forceinline__ bool is_nan(Number x) { return x.value != x.value; }
#define ZINC_FUNCTION(name, result) \
  friend __device__ __forceinline__ Number name(Number x) { return Number(result); }
  ZINC_FUNCTION(abs, fabsf(x.value))
  ZINC_FUNCTION(sqrt, sqrtf(x.value))
  ZINC_FUNCTION(exp, expf(x.value))
  ZINC_FUNCTION(log, logf(x.value))
  ZINC_FUNCTION(log1p, log1pf(x.value))
  ZINC_FUNCTION(tanh, tanhf(x.value))
  ZINC_FUNCTION(erf, erff(x.value))
  ZINC_FUNCTION(sigmoid, Sigmoid<T>(x.value).value)
  ZINC_FUNCTION(sigmoid_derivative, Sigmoid<T>(x.value).derivative)
  ZINC_FUNCTION(silu_derivative, Silu<T>::derivative(x.value))
#undef ZINC_FUNCTION
  // Without the cancellation of 1 - tanh(x)^2.
  friend __device__ __forceinline__ Number tanh_derivative(Number x) {
    const float e = expf(-2.0f * fabsf(x.value));
    return Number(4.0f * e / ((1.0f + e) * (1.0f + e)));
  }
  friend __device__ __forceinline__ Number power(Number x, Number exponent) {
    return Number(powf(x.value, exponent.value));
  }
};

// An integer, of which the comparisons alone are used.
struct WholeNumber {
  int64_t value;
  explicit __device__ __forceinline__ WholeNumber(int64_t v) : value(v) {}
#define ZINC_COMPARISON(sign)                                                          \
  friend __device__ __forceinline__ bool operator sign(WholeNumber a, WholeNumber b) { \
    return a.value sign b.value;                                                       \
  }
  ZINC_COMPARISON(==)
  ZINC_COMPARISON(!=)
  ZINC_COMPARISON(<)
  ZINC_COMPARISON(<=)
  ZINC_COMPARISON(>)
  ZINC_COMPARISON(>=)
#undef ZINC_COMPARISON
};

#undef ZINC_ELEMENT
#define ZINC_ELEMENT __device__ __forceinline__
#include "kernels/elementwise_rows-inl.h"

}  // namespace zinc::kernels::cuda
