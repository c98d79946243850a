// tests/kernels/gradient_check.h: derivatives by central differences, in f64.
#pragma once

#include <functional>
#include <vector>

#include "tests/kernels/host_array.h"

namespace zinc::test {

// d loss / d x with loss = sum over all outputs of dy * y, where `forward` computes y from x.
// With steps of h = 1e-5 the truncation error is h^2 / 6 times the third derivative and the
// rounding error eps * |loss| / h, each about 1e-11 for values of order one: kGradientTolerance
// leaves room for larger third derivatives.
inline constexpr double kGradientTolerance = 1e-8;

inline HostArray numeric_gradient(const HostArray& x, const HostArray& dy,
                                  const std::function<HostArray(const HostArray&)>& forward) {
  constexpr double kStep = 1e-5;
  const auto loss = [&](const HostArray& at) {
    const HostArray y = forward(at);
    double sum = 0.0;
    for (int64_t i = 0; i < y.numel(); ++i) sum += y.at(i) * dy.at(i);
    return sum;
  };
  HostArray result(x.shape(), DType::f64);
  HostArray moved = x;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = x.at(i);
    moved.set(i, value + kStep);
    const double above = loss(moved);
    moved.set(i, value - kStep);
    const double below = loss(moved);
    moved.set(i, value);
    result.set(i, (above - below) / (2.0 * kStep));
  }
  return result;
}

}  // namespace zinc::test
