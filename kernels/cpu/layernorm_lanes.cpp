// The f32, bf16 and f16 paths of layernorm. Forward is parallel over rows.
#include "kernels/layernorm.h"

#include "kernels/checks.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/past_caches.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layernorm_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/norm_backward-inl.h"
#include "kernels/cpu/norm_rows-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
void forward(const LayerNormForward& args) {
  const T* x = args.x.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  const T* beta = args.beta ? args.beta.data_as<T>() : nullptr;
  T* y = args.y.data_as<T>();
  float* mean = args.mean ? args.mean.data_as<float>() : nullptr;
  float* rstd = args.rstd ? args.rstd.data_as<float>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("layernorm", "x", args.x);
  const int64_t y_stride = row_stride("layernorm", "y", args.y);
  const auto eps = static_cast<float>(args.eps);
  const bool past = past_caches(args.y, args.x);
  parallel_for(args.x.rows(), norm_row_grain(cols, past), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * x_stride;
      const RowStatistics s = layer_statistics(row, cols, eps, r + 1 < end ? row + x_stride : row);
      layer_normalise(row, s, gamma, beta, y + r * y_stride, cols, past);
      if (mean != nullptr) mean[r] = s.mean;
      if (rstd != nullptr) rstd[r] = s.rstd;
    }
    if (past) flush_past_caches();
  });
}

void layernorm_forward_vectors(const LayerNormForward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { forward<T>(args); });
}

void layernorm_backward_vectors(const LayerNormBackward& args) {
  dispatch_short_float(args.x.dtype(),
                       [&]<class T>() { norm_backward<true, T>("layernorm", args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(layernorm_forward_vectors);
HWY_EXPORT(layernorm_backward_vectors);

void layernorm_forward_lanes(const LayerNormForward& args) {
  HWY_DYNAMIC_DISPATCH(layernorm_forward_vectors)(args);
}
void layernorm_backward_lanes(const LayerNormBackward& args) {
  HWY_DYNAMIC_DISPATCH(layernorm_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
