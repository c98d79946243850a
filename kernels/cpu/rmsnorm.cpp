#include "kernels/rmsnorm.h"

#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {
namespace {

template <class T>
void forward(const RmsNormForward& args) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  T* y = args.y.data_as<T>();
  A* rstd_out = args.rstd ? args.rstd.data_as<A>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("rmsnorm", "x", args.x);
  const int64_t y_stride = row_stride("rmsnorm", "y", args.y);
  parallel_for(args.x.rows(), norm_row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * x_stride;
      T* out = y + r * y_stride;
      const A squares = sum_row<A>(cols, [&](int64_t block) {
        const int64_t first = block * kSumBlock;
        return sum_block<A>(first, std::min(kSumBlock, cols - first),
                            [&](int64_t c) { return A(in[c]) * A(in[c]); });
      });
      const A rstd = A(1) / std::sqrt(squares / static_cast<A>(cols) + static_cast<A>(args.eps));
      for (int64_t c = 0; c < cols; ++c) out[c] = T(A(in[c]) * rstd * A(gamma[c]));
      if (rstd_out != nullptr) rstd_out[r] = rstd;
    }
  });
}

template <class T>
void backward(const RmsNormBackward& args) {
  using A = AccumulatorOf<T>;
  const T* dy = args.dy.data_as<T>();
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  const A* rstd = args.rstd.data_as<A>();
  const T* dresidual = args.dresidual ? args.dresidual.data_as<T>() : nullptr;
  T* dx = args.dx.data_as<T>();
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const int64_t dy_stride = row_stride("rmsnorm", "dy", args.dy);
  const int64_t x_stride = row_stride("rmsnorm", "x", args.x);
  const int64_t dx_stride = row_stride("rmsnorm", "dx", args.dx);
  const int64_t residual_stride =
      args.dresidual ? row_stride("rmsnorm", "dresidual", args.dresidual) : 0;

  const auto row = [&](int64_t r, A* dgamma_run) {
    const T* dy_row = dy + r * dy_stride;
    const T* x_row = x + r * x_stride;
    A sum_gh = A(0);
    for (int64_t c = 0; c < cols; ++c) {
      const A h = A(x_row[c]) * rstd[r];
      sum_gh += A(dy_row[c]) * A(gamma[c]) * h;
      if (dgamma_run != nullptr) dgamma_run[c] += A(dy_row[c]) * h;
    }
    const A mean_gh = sum_gh / static_cast<A>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const A h = A(x_row[c]) * rstd[r];
      A d = rstd[r] * (A(dy_row[c]) * A(gamma[c]) - h * mean_gh);
      if (dresidual != nullptr) d += A(dresidual[r * residual_stride + c]);
      dx[r * dx_stride + c] = T(d);
    }
  };
  if (!args.dgamma) {
    parallel_for(rows, norm_row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(r, nullptr);
    });
    return;
  }
  norm_backward_rows<A>(
      rows, cols, args.workspace.data(), false,
      [&](int64_t r, const NormPartials<A>& partials) { row(r, partials.dgamma_run); },
      [](A* run, A* total, int64_t n) {
        for (int64_t c = 0; c < n; ++c) total[c] += run[c];
        std::fill_n(run, n, A(0));
      });
  norm_store_sums<A, T>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
}

}  // namespace

void rmsnorm_forward(const RmsNormForward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() { forward<T>(args); });
}

void rmsnorm_backward(const RmsNormBackward& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() { backward<T>(args); });
}

}  // namespace zinc::kernels::cpu
