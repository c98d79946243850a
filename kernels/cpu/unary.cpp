#include "kernels/unary.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <class A>
A sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}

template <UnaryOp kOp, class A>
A value(A x) {
  switch (kOp) {
    case UnaryOp::neg:
      return -x;
    case UnaryOp::abs:
      return std::abs(x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::rsqrt:
      return A(1) / std::sqrt(x);
    case UnaryOp::reciprocal:
      return A(1) / x;
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::sigmoid:
      return sigmoid(x);
    case UnaryOp::relu:
      return x > A(0) || x != x ? x : A(0);
    case UnaryOp::silu:
      return x * sigmoid(x);
  }
}

template <UnaryOp kOp, class A>
A derivative(A x) {
  switch (kOp) {
    case UnaryOp::neg:
      return A(-1);
    case UnaryOp::abs:
      return x > A(0) ? A(1) : (x < A(0) ? A(-1) : A(0));
    case UnaryOp::square:
      return A(2) * x;
    case UnaryOp::sqrt:
      return A(0.5) / std::sqrt(x);
    case UnaryOp::rsqrt:
      return A(-0.5) / (x * std::sqrt(x));
    case UnaryOp::reciprocal:
      return A(-1) / (x * x);
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return A(1) / x;
    case UnaryOp::tanh: {
      const A e = std::exp(A(-2) * std::abs(x));  // 1 - tanh^2 without its cancellation
      return A(4) * e / ((A(1) + e) * (A(1) + e));
    }
    case UnaryOp::sigmoid:
      return sigmoid(x) * sigmoid(-x);
    case UnaryOp::relu:
      return x > A(0) ? A(1) : A(0);
    case UnaryOp::silu:
      return sigmoid(x) * (A(1) + x * sigmoid(-x));
  }
}

template <UnaryOp kOp, class A>
A gradient(A x, A dy) {
  if constexpr (kOp == UnaryOp::relu) return x > A(0) ? dy : A(0);
  return dy * derivative<kOp>(x);
}

template <class Body>
void dispatch_unary(UnaryOp op, Body&& body) {
  switch (op) {
    case UnaryOp::neg:
      return body.template operator()<UnaryOp::neg>();
    case UnaryOp::abs:
      return body.template operator()<UnaryOp::abs>();
    case UnaryOp::square:
      return body.template operator()<UnaryOp::square>();
    case UnaryOp::sqrt:
      return body.template operator()<UnaryOp::sqrt>();
    case UnaryOp::rsqrt:
      return body.template operator()<UnaryOp::rsqrt>();
    case UnaryOp::reciprocal:
      return body.template operator()<UnaryOp::reciprocal>();
    case UnaryOp::exp:
      return body.template operator()<UnaryOp::exp>();
    case UnaryOp::log:
      return body.template operator()<UnaryOp::log>();
    case UnaryOp::tanh:
      return body.template operator()<UnaryOp::tanh>();
    case UnaryOp::sigmoid:
      return body.template operator()<UnaryOp::sigmoid>();
    case UnaryOp::relu:
      return body.template operator()<UnaryOp::relu>();
    case UnaryOp::silu:
      return body.template operator()<UnaryOp::silu>();
  }
}

}  // namespace

void unary(const Unary& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    T* y = args.y.data_as<T>();
    dispatch_unary(args.op, [&]<UnaryOp kOp>() {
      parallel_elements(
          args.x.shape(),
          [&](const auto& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) y[at[1] + i] = T(value<kOp>(A(x[at[0] + i])));
          },
          args.x, args.y);
    });
  });
}

void unary_backward(const UnaryBackward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    const T* dy = args.dy.data_as<T>();
    T* dx = args.dx.data_as<T>();
    dispatch_unary(args.op, [&]<UnaryOp kOp>() {
      parallel_elements(
          args.x.shape(),
          [&](const auto& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              dx[at[2] + i] = T(gradient<kOp>(A(x[at[0] + i]), A(dy[at[1] + i])));
            }
          },
          args.x, args.dy, args.dx);
    });
  });
}

}  // namespace zinc::kernels::cpu
