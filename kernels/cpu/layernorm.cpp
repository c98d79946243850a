#include "kernels/layernorm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/norm_rows.h"

namespace zinc::kernels::cpu {
namespace {

template <class T>
void forward(const LayerNormForward& args) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  const T* beta = args.beta ? args.beta.data_as<T>() : nullptr;
  T* y = args.y.data_as<T>();
  A* mean_out = args.mean ? args.mean.data_as<A>() : nullptr;
  A* rstd_out = args.rstd ? args.rstd.data_as<A>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("layernorm", "x", args.x);
  const int64_t y_stride = row_stride("layernorm", "y", args.y);
  parallel_for(args.x.rows(), norm_row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * x_stride;
      T* out = y + r * y_stride;
      A sum = A(0);
      for (int64_t c = 0; c < cols; ++c) sum += A(in[c]);
      const A mean = sum / static_cast<A>(cols);
      A squares = A(0);
      for (int64_t c = 0; c < cols; ++c) squares += (A(in[c]) - mean) * (A(in[c]) - mean);
      const A rstd = A(1) / std::sqrt(squares / static_cast<A>(cols) + static_cast<A>(args.eps));
      for (int64_t c = 0; c < cols; ++c) {
        const A h = (A(in[c]) - mean) * rstd;
        out[c] = T(h * A(gamma[c]) + (beta == nullptr ? A(0) : A(beta[c])));
      }
      if (mean_out != nullptr) mean_out[r] = mean;
      if (rstd_out != nullptr) rstd_out[r] = rstd;
    }
  });
}

template <class T>
void backward(const LayerNormBackward& args) {
  using A = AccumulatorOf<T>;
  const T* dy = args.dy.data_as<T>();
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  const A* mean = args.mean.data_as<A>();
  const A* rstd = args.rstd.data_as<A>();
  const T* dresidual = args.dresidual ? args.dresidual.data_as<T>() : nullptr;
  T* dx = args.dx.data_as<T>();
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const int64_t dy_stride = row_stride("layernorm", "dy", args.dy);
  const int64_t x_stride = row_stride("layernorm", "x", args.x);
  const int64_t dx_stride = row_stride("layernorm", "dx", args.dx);
  const int64_t residual_stride =
      args.dresidual ? row_stride("layernorm", "dresidual", args.dresidual) : 0;

  const auto row = [&](int64_t r, const NormPartials<A>* partials) {
    const T* dy_row = dy + r * dy_stride;
    const T* x_row = x + r * x_stride;
    const auto h = [&](int64_t c) { return (A(x_row[c]) - mean[r]) * rstd[r]; };
    A sum_g = A(0);
    A sum_gh = A(0);
    for (int64_t c = 0; c < cols; ++c) {
      const A g = A(dy_row[c]) * A(gamma[c]);
      sum_g += g;
      sum_gh += g * h(c);
      if (partials != nullptr) {
        partials->dgamma_run[c] += A(dy_row[c]) * h(c);
        partials->dbeta_run[c] += A(dy_row[c]);
      }
    }
    const A mean_g = sum_g / static_cast<A>(cols);
    const A mean_gh = sum_gh / static_cast<A>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const A g = A(dy_row[c]) * A(gamma[c]);
      A d = rstd[r] * (g - mean_g - h(c) * mean_gh);
      if (dresidual != nullptr) d += A(dresidual[r * residual_stride + c]);
      dx[r * dx_stride + c] = T(d);
    }
  };
  if (!args.dgamma && !args.dbeta) {
    parallel_for(rows, norm_row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(r, nullptr);
    });
    return;
  }
  norm_backward_rows<A>(
      rows, cols, args.workspace.data(), true,
      [&](int64_t r, const NormPartials<A>& partials) { row(r, &partials); },
      [](A* run, A* total, int64_t n) {
        for (int64_t c = 0; c < n; ++c) total[c] += run[c];
        std::fill_n(run, n, A(0));
      });
  norm_store_sums<A, T>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
  norm_store_sums<A, T>(args.workspace, rows, true, args.accumulate_dbeta, args.dbeta);
}

}  // namespace

void layernorm_forward(const LayerNormForward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() { forward<T>(args); });
}

void layernorm_backward(const LayerNormBackward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() { backward<T>(args); });
}

}  // namespace zinc::kernels::cpu
