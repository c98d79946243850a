#include "kernels/layernorm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/norm_rows.h"

namespace zinc::kernels::cpu {

void layernorm_forward_lanes(const LayerNormForward& args);
void layernorm_backward_lanes(const LayerNormBackward& args);

void layernorm_forward(const LayerNormForward& args) {
  if (args.x.dtype() != DType::f64) return layernorm_forward_lanes(args);
  const double* gamma = args.gamma.data_as<double>();
  const double* beta = args.beta ? args.beta.data_as<double>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("layernorm", "x", args.x);
  const int64_t y_stride = row_stride("layernorm", "y", args.y);
  parallel_for(args.x.rows(), norm_row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = args.x.data_as<double>() + r * x_stride;
      double* y = args.y.data_as<double>() + r * y_stride;
      double sum = 0.0;
      for (int64_t c = 0; c < cols; ++c) sum += x[c];
      const double mean = sum / static_cast<double>(cols);
      double squares = 0.0;
      for (int64_t c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
      const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(cols) + args.eps);
      for (int64_t c = 0; c < cols; ++c) {
        y[c] = (x[c] - mean) * rstd * gamma[c] + (beta == nullptr ? 0.0 : beta[c]);
      }
      if (args.mean) args.mean.data_as<double>()[r] = mean;
      if (args.rstd) args.rstd.data_as<double>()[r] = rstd;
    }
  });
}

namespace {

// dx of row r, and its part of dgamma and dbeta where `partials` is given.
void backward_row(const LayerNormBackward& args, int64_t r, const NormPartials<double>* partials) {
  const int64_t cols = args.x.cols();
  const double* dy = args.dy.data_as<double>() + r * row_stride("layernorm", "dy", args.dy);
  const double* x = args.x.data_as<double>() + r * row_stride("layernorm", "x", args.x);
  double* dx = args.dx.data_as<double>() + r * row_stride("layernorm", "dx", args.dx);
  const double* dresidual = args.dresidual
                                ? args.dresidual.data_as<double>() +
                                      r * row_stride("layernorm", "dresidual", args.dresidual)
                                : nullptr;
  const double* gamma = args.gamma.data_as<double>();
  const double mean = args.mean.data_as<double>()[r];
  const double rstd = args.rstd.data_as<double>()[r];
  double sum_g = 0.0;
  double sum_gh = 0.0;
  for (int64_t c = 0; c < cols; ++c) {
    const double h = (x[c] - mean) * rstd;
    sum_g += dy[c] * gamma[c];
    sum_gh += dy[c] * gamma[c] * h;
    if (partials != nullptr) {
      partials->dgamma_run[c] += dy[c] * h;
      partials->dbeta_run[c] += dy[c];
    }
  }
  const double mean_g = sum_g / static_cast<double>(cols);
  const double mean_gh = sum_gh / static_cast<double>(cols);
  for (int64_t c = 0; c < cols; ++c) {
    const double h = (x[c] - mean) * rstd;
    const double d = rstd * (dy[c] * gamma[c] - mean_g - h * mean_gh);
    dx[c] = dresidual == nullptr ? d : d + dresidual[c];
  }
}

}  // namespace

void layernorm_backward(const LayerNormBackward& args) {
  if (args.x.dtype() != DType::f64) return layernorm_backward_lanes(args);
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  if (!args.dgamma && !args.dbeta) {
    parallel_for(rows, norm_row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) backward_row(args, r, nullptr);
    });
    return;
  }
  norm_backward_rows<double>(
      rows, cols, args.workspace.data(), true,
      [&](int64_t r, const NormPartials<double>& partials) { backward_row(args, r, &partials); },
      norm_fold_plainly);
  norm_store_sums<double, double>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
  norm_store_sums<double, double>(args.workspace, rows, true, args.accumulate_dbeta, args.dbeta);
}

}  // namespace zinc::kernels::cpu
