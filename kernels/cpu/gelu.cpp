#include "kernels/gelu.h"

#include "kernels/cpu/activation_f64.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void gelu_forward_lanes(const GeluForward& args);
void gelu_backward_lanes(const GeluBackward& args);

namespace {

double value(GeluKind kind, double x) { return kind == GeluKind::erf ? gelu_erf(x) : gelu_tanh(x); }

double derivative(GeluKind kind, double x) {
  return kind == GeluKind::erf ? gelu_erf_derivative(x) : gelu_tanh_derivative(x);
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
