#include "kernels/unary.h"

#include <cmath>

#include "kernels/cpu/op_dispatch.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/sigmoid.h"

namespace zinc::kernels::cpu {

void unary_lanes(const Unary& args);
void unary_backward_lanes(const UnaryBackward& args);

namespace {

template <UnaryOp kOp>
double value(double x) {
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
      return 1.0 / std::sqrt(x);
    case UnaryOp::reciprocal:
      return 1.0 / x;
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::sigmoid:
      return sigmoid(x);
    case UnaryOp::relu:
      return x > 0.0 || x != x ? x : 0.0;
    case UnaryOp::silu:
      return x * sigmoid(x);
  }
}

template <UnaryOp kOp>
double gradient(double x, double dy) {
  switch (kOp) {
    case UnaryOp::neg:
      return -dy;
    case UnaryOp::abs:
      return x > 0.0 ? dy : (x < 0.0 ? -dy : 0.0);
    case UnaryOp::square:
      return dy * 2.0 * x;
    case UnaryOp::sqrt:
      return dy * 0.5 / std::sqrt(x);
    case UnaryOp::rsqrt:
      return dy * -0.5 / (x * std::sqrt(x));
    case UnaryOp::reciprocal:
      return -dy / (x * x);
    case UnaryOp::exp:
      return dy * std::exp(x);
    case UnaryOp::log:
      return dy / x;
    case UnaryOp::tanh: {
      const double e = std::exp(-2.0 * std::abs(x));  // 1 - tanh^2 without its cancellation
      return dy * 4.0 * e / ((1.0 + e) * (1.0 + e));
    }
    case UnaryOp::sigmoid:
      return dy * sigmoid(x) * sigmoid(-x);
    case UnaryOp::relu:
      return x > 0.0 ? dy : 0.0;
    case UnaryOp::silu:
      return dy * sigmoid(x) * (1.0 + x * sigmoid(-x));
  }
}

}  // namespace

void unary(const Unary& args) {
  if (args.x.dtype() != DType::f64) return unary_lanes(args);
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  dispatch_unary(args.op, [&]<UnaryOp kOp>() {
    parallel_elements(
        args.x.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[at[1] + i] = value<kOp>(x[at[0] + i]);
        },
        args.x, args.y);
  });
}

void unary_backward(const UnaryBackward& args) {
  if (args.x.dtype() != DType::f64) return unary_backward_lanes(args);
  const double* x = args.x.data_as<double>();
  const double* dy = args.dy.data_as<double>();
  double* dx = args.dx.data_as<double>();
  dispatch_unary(args.op, [&]<UnaryOp kOp>() {
    parallel_elements(
        args.x.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            dx[at[2] + i] = gradient<kOp>(x[at[0] + i], dy[at[1] + i]);
          }
        },
        args.x, args.dy, args.dx);
  });
}

}  // namespace zinc::kernels::cpu
