// kernels/cpu/f64_number.h: the numbers of the plain loops, f64 and integers, with the vocabulary
// of kernels/elementwise_table.h.
#pragma once

#include <cmath>

namespace zinc::kernels::cpu {

// T: double, or int64_t, of which the comparisons alone are used.
template <class T>
struct PlainNumber {
  T value;
  PlainNumber(T v) : value(v) {}  // NOLINT(google-explicit-constructor)

  friend PlainNumber operator+(PlainNumber a, PlainNumber b) { return a.value + b.value; }
  friend PlainNumber operator-(PlainNumber a, PlainNumber b) { return a.value - b.value; }
  friend PlainNumber operator*(PlainNumber a, PlainNumber b) { return a.value * b.value; }
  friend PlainNumber operator/(PlainNumber a, PlainNumber b) { return a.value / b.value; }
  friend PlainNumber operator-(PlainNumber a) { return -a.value; }
  friend bool operator==(PlainNumber a, PlainNumber b) { return a.value == b.value; }
  friend bool operator!=(PlainNumber a, PlainNumber b) { return a.value != b.value; }
  friend bool operator<(PlainNumber a, PlainNumber b) { return a.value < b.value; }
  friend bool operator<=(PlainNumber a, PlainNumber b) { return a.value <= b.value; }
  friend bool operator>(PlainNumber a, PlainNumber b) { return a.value > b.value; }
  friend bool operator>=(PlainNumber a, PlainNumber b) { return a.value >= b.value; }
};

using F64 = PlainNumber<double>;
inline F64 select(bool mask, F64 a, F64 b) { return mask ? a : b; }
inline F64 fma(F64 a, F64 b, F64 c) { return std::fma(a.value, b.value, c.value); }
inline bool is_nan(F64 x) { return x.value != x.value; }
inline F64 abs(F64 x) { return std::abs(x.value); }
inline F64 sqrt(F64 x) { return std::sqrt(x.value); }
inline F64 exp(F64 x) { return std::exp(x.value); }
inline F64 log(F64 x) { return std::log(x.value); }
inline F64 log1p(F64 x) { return std::log1p(x.value); }
inline F64 tanh(F64 x) { return std::tanh(x.value); }
inline F64 erf(F64 x) { return std::erf(x.value); }
inline F64 power(F64 x, F64 exponent) { return std::pow(x.value, exponent.value); }
inline F64 sigmoid(F64 x) { return 1.0 / (1.0 + std::exp(-x.value)); }
inline F64 tanh_derivative(F64 x) {
  const double e = std::exp(-2.0 * std::abs(x.value));  // 1 - tanh^2 without its cancellation
  return 4.0 * e / ((1.0 + e) * (1.0 + e));
}
inline F64 sigmoid_derivative(F64 x) { return sigmoid(x) * sigmoid(-x); }
inline F64 silu_derivative(F64 x) { return sigmoid(x) * (F64(1.0) + x * sigmoid(-x)); }

}  // namespace zinc::kernels::cpu
