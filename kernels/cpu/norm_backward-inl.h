// kernels/cpu/norm_backward-inl.h: the backward pass of the norms on vectors of f32 lanes.
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_NORM_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_NORM_BACKWARD_INL_H_
#undef ZINC_KERNELS_CPU_NORM_BACKWARD_INL_H_
#else
#define ZINC_KERNELS_CPU_NORM_BACKWARD_INL_H_
#endif

#include "kernels/checks.h"
#include "kernels/cpu/norm_rows-inl.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/past_caches.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Parallel over rows; where parameters have gradients, over the blocks of rows of norm_blocks.h.
// Centred: a LayerNormBackward, else an RmsNormBackward, which has neither mean nor beta.
template <bool kCentred, class T, class Args>
void norm_backward(const char* op, const Args& args) {
  const float* mean = nullptr;
  bool sums_parameters = static_cast<bool>(args.dgamma);
  if constexpr (kCentred) {
    mean = args.mean.template data_as<float>();
    sums_parameters = sums_parameters || args.dbeta;
  }
  const float* rstd = args.rstd.template data_as<float>();
  const int64_t rows = args.x.rows();
  const int64_t cols = args.x.cols();
  const int64_t dy_stride = row_stride(op, "dy", args.dy);
  const int64_t x_stride = row_stride(op, "x", args.x);
  const int64_t dx_stride = row_stride(op, "dx", args.dx);
  const int64_t residual_stride = args.dresidual ? row_stride(op, "dresidual", args.dresidual) : 0;
  const bool past = args.dresidual ? past_caches(args.dx, args.dy, args.x, args.dresidual)
                                   : past_caches(args.dx, args.dy, args.x);
  const auto row_at = [&](int64_t r) {
    const T* residual =
        args.dresidual ? args.dresidual.template data_as<T>() + r * residual_stride : nullptr;
    return NormGradientRow<T>{.dy = args.dy.template data_as<T>() + r * dy_stride,
                              .x = args.x.template data_as<T>() + r * x_stride,
                              .gamma = args.gamma.template data_as<T>(),
                              .dresidual = residual,
                              .dx = args.dx.template data_as<T>() + r * dx_stride,
                              .cols = cols,
                              .statistics = {kCentred ? mean[r] : 0.0f, rstd[r]},
                              .past_caches = past};
  };
  if (!sums_parameters) {
    parallel_for(rows, norm_row_grain(cols, past), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const NormGradientRow<T> row = row_at(r);
        norm_gradient_apply<kCentred>(row,
                                      norm_gradient_sums<false, kCentred>(row, nullptr, nullptr));
      }
      if (past) flush_past_caches();
    });
    return;
  }
  norm_backward_rows<float>(
      rows, cols, args.workspace.data(), kCentred,
      [&](int64_t r, const NormPartials<float>& partials) {
        const NormGradientRow<T> row = row_at(r);
        norm_gradient_apply<kCentred>(
            row, norm_gradient_sums<true, kCentred>(row, partials.dgamma_run, partials.dbeta_run));
      },
      norm_fold);
  norm_store_sums<float, T>(args.workspace, rows, false, args.accumulate_dgamma, args.dgamma);
  if constexpr (kCentred) {
    norm_store_sums<float, T>(args.workspace, rows, true, args.accumulate_dbeta, args.dbeta);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
