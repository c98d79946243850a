#include "kernels/gelu.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <GeluKind kKind, class A>
A value(A x) {
  if constexpr (kKind == GeluKind::erf) {
    return A(0.5) * x * (A(1) + std::erf(x * A(std::numbers::sqrt2 / 2)));
  } else {
    const A u = A(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + A(0.044715) * x * x * x);
    return A(0.5) * x * (A(1) + std::tanh(u));
  }
}

template <GeluKind kKind, class A>
A derivative(A x) {
  if constexpr (kKind == GeluKind::erf) {
    const A density = A(std::numbers::inv_sqrtpi / std::numbers::sqrt2) * std::exp(-A(0.5) * x * x);
    return A(0.5) * (A(1) + std::erf(x * A(std::numbers::sqrt2 / 2))) + x * density;
  } else {
    constexpr A kRoot = A(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    const A t = std::tanh(kRoot * (x + A(0.044715) * x * x * x));
    const A slope = kRoot * (A(1) + A(3 * 0.044715) * x * x);
    return A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * slope;
  }
}

template <class Body>
void dispatch_kind(GeluKind kind, Body&& body) {
  switch (kind) {
    case GeluKind::erf:
      return body.template operator()<GeluKind::erf>();
    case GeluKind::tanh:
      return body.template operator()<GeluKind::tanh>();
  }
}

}  // namespace

void gelu_forward(const GeluForward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    T* y = args.y.data_as<T>();
    dispatch_kind(args.kind, [&]<GeluKind kKind>() {
      parallel_elements(
          args.x.shape(),
          [&](const auto& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) y[at[1] + i] = T(value<kKind>(A(x[at[0] + i])));
          },
          args.x, args.y);
    });
  });
}

void gelu_backward(const GeluBackward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    const T* dy = args.dy.data_as<T>();
    T* dx = args.dx.data_as<T>();
    dispatch_kind(args.kind, [&]<GeluKind kKind>() {
      parallel_elements(
          args.x.shape(),
          [&](const auto& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              dx[at[2] + i] = T(A(dy[at[1] + i]) * derivative<kKind>(A(x[at[0] + i])));
            }
          },
          args.x, args.dy, args.dx);
    });
  });
}

}  // namespace zinc::kernels::cpu
