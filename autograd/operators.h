// autograd/operators.h: arithmetic and comparisons of tensors as operators.
//
// a + b, a - b, a * b, a / b, -a: autograd/ops/binary.h and unary.h, where shapes stretch to each
// other; one side may be a number. ==, !=, <, <=, >, >=: masks (autograd/ops/compare.h); &, | and !
// combine masks. a += b is a = a + b: the name gets a new tensor, other handles keep the old one.
#pragma once

#include <concepts>

#include "autograd/ops/binary.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "tensor/tensor.h"

namespace zinc {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return autograd::add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return autograd::sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return autograd::mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return autograd::div(a, b); }
inline Tensor operator-(const Tensor& a) { return autograd::neg(a); }

inline Tensor operator+(const Tensor& a, double b) { return autograd::affine(a, 1.0, b); }
inline Tensor operator+(double a, const Tensor& b) { return autograd::affine(b, 1.0, a); }
inline Tensor operator-(const Tensor& a, double b) { return autograd::affine(a, 1.0, -b); }
inline Tensor operator-(double a, const Tensor& b) { return autograd::affine(b, -1.0, a); }
inline Tensor operator*(const Tensor& a, double b) { return autograd::scale(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return autograd::scale(b, a); }
inline Tensor operator/(const Tensor& a, double b) {
  return autograd::unary(kernels::UnaryOp::over_scalar, a, b);
}
inline Tensor operator/(double a, const Tensor& b) {
  return autograd::unary(kernels::UnaryOp::scalar_over, b, a);
}

template <class Right>
concept TensorOrNumber = std::convertible_to<Right, double> || std::same_as<Right, Tensor>;

template <TensorOrNumber Right>
Tensor& operator+=(Tensor& a, const Right& b) {
  return a = a + b;
}
template <TensorOrNumber Right>
Tensor& operator-=(Tensor& a, const Right& b) {
  return a = a - b;
}
template <TensorOrNumber Right>
Tensor& operator*=(Tensor& a, const Right& b) {
  return a = a * b;
}
template <TensorOrNumber Right>
Tensor& operator/=(Tensor& a, const Right& b) {
  return a = a / b;
}

inline Tensor operator==(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::eq, a, b);
}
inline Tensor operator==(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::eq, a, b);
}
inline Tensor operator!=(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::ne, a, b);
}
inline Tensor operator!=(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::ne, a, b);
}
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::lt, a, b);
}
inline Tensor operator<(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::lt, a, b);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::le, a, b);
}
inline Tensor operator<=(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::le, a, b);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::gt, a, b);
}
inline Tensor operator>(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::gt, a, b);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return autograd::compare(kernels::CompareOp::ge, a, b);
}
inline Tensor operator>=(const Tensor& a, double b) {
  return autograd::compare(kernels::CompareOp::ge, a, b);
}
inline Tensor operator<(double a, const Tensor& b) { return b > a; }
inline Tensor operator<=(double a, const Tensor& b) { return b >= a; }
inline Tensor operator>(double a, const Tensor& b) { return b < a; }
inline Tensor operator>=(double a, const Tensor& b) { return b <= a; }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return autograd::logical_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return autograd::logical_or(a, b); }
inline Tensor operator!(const Tensor& mask) { return autograd::logical_not(mask); }

}  // namespace zinc
