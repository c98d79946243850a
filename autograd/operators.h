// autograd/operators.h: arithmetic and comparisons of tensors as operators.
//
// a + b, a - b, a * b, a / b, -a: autograd/ops/binary.h and unary.h, where shapes stretch to each
// other; one side may be a number. ==, !=, <, <=, >, >=: masks (autograd/ops/compare.h); &, | and !
// combine masks. a += b is a = a + b: the name gets a new tensor, other handles keep the old one.
// stream << x prints shape, dtype, device and values.
#pragma once

#include <concepts>
#include <ostream>

#include "autograd/ops/binary.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/unary.h"
#include "tensor/tensor.h"

namespace zinc {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return autograd::add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return autograd::sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return autograd::mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return autograd::div(a, b); }
inline Tensor operator-(const Tensor& a) { return autograd::neg(a); }

inline Tensor operator+(const Tensor& a, double b) { return autograd::add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return autograd::add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return autograd::sub(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return autograd::sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return autograd::mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return autograd::mul(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return autograd::div(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return autograd::div(a, b); }

template <class Right>
concept TensorOrNumber =
    std::convertible_to<const Right&, double> || std::convertible_to<const Right&, const Tensor&>;

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

// An operand that is neither tensor nor number is refused with a short message, instead of a list
// of all operators. A parameter's tensor is value(parameter).
template <class T>
concept NoOperand = !TensorOrNumber<T>;
#define ZINC_REFUSED(Result, sign)                                             \
  template <NoOperand NeitherTensorNorNumber>                                  \
  Result operator sign(const Tensor&, const NeitherTensorNorNumber&) = delete; \
  template <NoOperand NeitherTensorNorNumber>                                  \
  Result operator sign(const NeitherTensorNorNumber&, const Tensor&) = delete;
ZINC_REFUSED(Tensor, +)
ZINC_REFUSED(Tensor, -)
ZINC_REFUSED(Tensor, *)
ZINC_REFUSED(Tensor, /)
ZINC_REFUSED(Tensor, <)
ZINC_REFUSED(Tensor, <=)
ZINC_REFUSED(Tensor, >)
ZINC_REFUSED(Tensor, >=)
ZINC_REFUSED(bool, ==)
ZINC_REFUSED(bool, !=)
#undef ZINC_REFUSED

// Prints to_string().
inline std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}

}  // namespace zinc
