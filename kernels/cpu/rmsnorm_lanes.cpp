// The f32, bf16 and f16 paths of rmsnorm. Parallel over rows; dgamma over the blocks of rows of
// norm_blocks.h.
#include "kernels/rmsnorm.h"

#include "kernels/checks.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/past_caches.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rmsnorm_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/norm_rows-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
void forward(const RmsNormForward& args) {
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  T* y = args.y.data_as<T>();
  float* rstd = args.rstd ? args.rstd.data_as<float>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("rmsnorm", "x", args.x);
  const int64_t y_stride = row_stride("rmsnorm", "y", args.y);
  const auto eps = static_cast<float>(args.eps);
  const bool past = past_caches(args.y, args.x);
  parallel_for(args.x.rows(), norm_row_grain(cols, past), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * x_stride;
      const RowStatistics s = rms_statistics(row, cols, eps);
      rms_normalise(row, s, gamma, y + r * y_stride, cols, past);
      if (rstd != nullptr) rstd[r] = s.rstd;
    }
    if (past) flush_past_caches();
  });
}

template <class T>
void backward(const RmsNormBackward& args) {
  const float* rstd = args.rstd.data_as<float>();
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const int64_t dy_stride = row_stride("rmsnorm", "dy", args.dy);
  const int64_t x_stride = row_stride("rmsnorm", "x", args.x);
  const int64_t dx_stride = row_stride("rmsnorm", "dx", args.dx);
  const int64_t residual_stride =
      args.dresidual ? row_stride("rmsnorm", "dresidual", args.dresidual) : 0;
  const bool past = args.dresidual ? past_caches(args.dx, args.dy, args.x, args.dresidual)
                                   : past_caches(args.dx, args.dy, args.x);
  const auto row_at = [&](int64_t r) {
    return NormGradientRow<T>{
        .dy = args.dy.data_as<T>() + r * dy_stride,
        .x = args.x.data_as<T>() + r * x_stride,
        .gamma = args.gamma.data_as<T>(),
        .dresidual = args.dresidual ? args.dresidual.data_as<T>() + r * residual_stride : nullptr,
        .dx = args.dx.data_as<T>() + r * dx_stride,
        .cols = cols,
        .statistics = {0.0f, rstd[r]},
        .past_caches = past};
  };
  if (!args.dgamma) {
    parallel_for(rows, norm_row_grain(cols, past), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const NormGradientRow<T> row = row_at(r);
        norm_gradient_apply<false>(row, norm_gradient_sums<false, false>(row, nullptr, nullptr));
      }
      if (past) flush_past_caches();
    });
    return;
  }
  norm_backward_rows<float>(
      rows, cols, args.workspace.data(), false,
      [&](int64_t r, const NormPartials<float>& partials) {
        const NormGradientRow<T> row = row_at(r);
        norm_gradient_apply<false>(
            row, norm_gradient_sums<true, false>(row, partials.dgamma_run, nullptr));
      },
      norm_fold);
  norm_store_sums<float, T>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
}

void rmsnorm_forward_vectors(const RmsNormForward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { forward<T>(args); });
}

void rmsnorm_backward_vectors(const RmsNormBackward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { backward<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(rmsnorm_forward_vectors);
HWY_EXPORT(rmsnorm_backward_vectors);

void rmsnorm_forward_lanes(const RmsNormForward& args) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_forward_vectors)(args);
}
void rmsnorm_backward_lanes(const RmsNormBackward& args) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
