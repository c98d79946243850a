#include "kernels/gelu.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void gelu_forward_lanes(const GeluForward& args);
void gelu_backward_lanes(const GeluBackward& args);

namespace {

constexpr double kRootHalf = std::numbers::sqrt2 / 2.0;
constexpr double kRootTwoOverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kCubic = 0.044715;

double value(GeluKind kind, double x) {
  if (kind == GeluKind::erf) return 0.5 * x * (1.0 + std::erf(x * kRootHalf));
  return 0.5 * x * (1.0 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
}

double derivative(GeluKind kind, double x) {
  if (kind == GeluKind::erf) {
    const double density = 0.5 * kRootTwoOverPi * std::exp(-0.5 * x * x);
    return 0.5 * (1.0 + std::erf(x * kRootHalf)) + x * density;
  }
  const double t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
  const double slope = kRootTwoOverPi * (1.0 + 3.0 * kCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope;
}

}  // namespace

void gelu_forward(const GeluForward& args) {
  if (args.x.dtype() != DType::f64) return gelu_forward_lanes(args);
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  parallel_elements(
      args.x.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) y[at[1] + i] = value(args.kind, x[at[0] + i]);
      },
      args.x, args.y);
}

void gelu_backward(const GeluBackward& args) {
  if (args.x.dtype() != DType::f64) return gelu_backward_lanes(args);
  const double* x = args.x.data_as<double>();
  const double* dy = args.dy.data_as<double>();
  double* dx = args.dx.data_as<double>();
  parallel_elements(
      args.x.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          dx[at[2] + i] = dy[at[1] + i] * derivative(args.kind, x[at[0] + i]);
        }
      },
      args.x, args.dy, args.dx);
}

}  // namespace zinc::kernels::cpu
