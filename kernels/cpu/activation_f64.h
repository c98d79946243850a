// kernels/cpu/activation_f64.h: GELU and SiLU in f64, for products with an activation and for the
// functions by themselves, which have the same bits so.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/cpu/sigmoid.h"

namespace zinc::kernels::cpu {

// gelu(x) = x gate(x) with gate = 0.5 (1 + tanh(u)) = sigmoid(2u), which does not cancel for
// negative u; u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  double gate, derivative_of_gate;
  explicit GeluTanh(double x) {
    const double root = 2.0 * std::sqrt(2.0 / std::numbers::pi);
    gate = sigmoid(root * (x + 0.044715 * x * x * x));
    derivative_of_gate = gate * (1.0 - gate) * root * (1.0 + 3.0 * 0.044715 * x * x);
  }
};

inline double gelu_tanh(double x) { return x * GeluTanh(x).gate; }
inline double gelu_tanh_derivative(double x) {
  const GeluTanh gelu(x);
  return gelu.gate + x * gelu.derivative_of_gate;
}

inline double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
inline double gelu_erf_derivative(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
         x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
}

}  // namespace zinc::kernels::cpu
