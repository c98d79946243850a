#include "kernels/rmsnorm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/norm_rows.h"

namespace zinc::kernels::cpu {

void rmsnorm_forward_lanes(const RmsNormForward& args);
void rmsnorm_backward_lanes(const RmsNormBackward& args);

void rmsnorm_forward(const RmsNormForward& args) {
  if (args.x.dtype() != DType::f64) return rmsnorm_forward_lanes(args);
  const double* gamma = args.gamma.data_as<double>();
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("rmsnorm", "x", args.x);
  const int64_t y_stride = row_stride("rmsnorm", "y", args.y);
  parallel_for(args.x.rows(), norm_row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = args.x.data_as<double>() + r * x_stride;
      double* y = args.y.data_as<double>() + r * y_stride;
      double squares = 0.0;
      for (int64_t c = 0; c < cols; ++c) squares += x[c] * x[c];
      const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(cols) + args.eps);
      for (int64_t c = 0; c < cols; ++c) y[c] = x[c] * rstd * gamma[c];
      if (args.rstd) args.rstd.data_as<double>()[r] = rstd;
    }
  });
}

namespace {

// dx of row r, and its part of dgamma where `dgamma` is given.
void backward_row(const RmsNormBackward& args, int64_t r, double* dgamma) {
  const int64_t cols = args.x.cols();
  const double* dy = args.dy.data_as<double>() + r * row_stride("rmsnorm", "dy", args.dy);
  const double* x = args.x.data_as<double>() + r * row_stride("rmsnorm", "x", args.x);
  double* dx = args.dx.data_as<double>() + r * row_stride("rmsnorm", "dx", args.dx);
  const double* dresidual = args.dresidual
                                ? args.dresidual.data_as<double>() +
                                      r * row_stride("rmsnorm", "dresidual", args.dresidual)
                                : nullptr;
  const double* gamma = args.gamma.data_as<double>();
  const double rstd = args.rstd.data_as<double>()[r];
  double sum_gh = 0.0;
  for (int64_t c = 0; c < cols; ++c) {
    const double h = x[c] * rstd;
    sum_gh += dy[c] * gamma[c] * h;
    if (dgamma != nullptr) dgamma[c] += dy[c] * h;
  }
  const double mean_gh = sum_gh / static_cast<double>(cols);
  for (int64_t c = 0; c < cols; ++c) {
    const double d = rstd * (dy[c] * gamma[c] - x[c] * rstd * mean_gh);
    dx[c] = dresidual == nullptr ? d : d + dresidual[c];
  }
}

}  // namespace

void rmsnorm_backward(const RmsNormBackward& args) {
  if (args.x.dtype() != DType::f64) return rmsnorm_backward_lanes(args);
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  if (!args.dgamma) {
    parallel_for(rows, norm_row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) backward_row(args, r, nullptr);
    });
    return;
  }
  norm_backward_rows<double>(
      rows, cols, args.workspace.data(), false,
      [&](int64_t r, const NormPartials<double>& partials) {
        backward_row(args, r, partials.dgamma_run);
      },
      norm_fold_plainly);
  norm_store_sums<double, double>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
}

}  // namespace zinc::kernels::cpu
