// The f32, bf16 and f16 paths of residual_norm. The rounded sum of a row is written and then read
// back from the first-level cache by the row functions of the norms, so that bits equal the
// composition's.
#include "kernels/residual_norm.h"

#include "kernels/checks.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/norm_rows.h"
#include "kernels/cpu/past_caches.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_norm_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/norm_rows-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
void add_rows(const T* x, const T* residual, T* sum, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto load, auto store)
                            HWY_ATTR { store(hn::Add(load(x + i), load(residual + i)), sum + i); });
}

// Columns of a sum that is kept in the cache for its norm while it is stored past the caches.
constexpr int64_t kKeptColumns = 4096;

template <class T>
void forward(const ResidualNormForward& args) {
  const T* x = args.x.data_as<T>();
  const T* residual = args.residual.data_as<T>();
  const T* gamma = args.gamma.data_as<T>();
  const T* beta = args.beta ? args.beta.data_as<T>() : nullptr;
  T* sum = args.sum.data_as<T>();
  T* y = args.y.data_as<T>();
  float* mean = args.mean ? args.mean.data_as<float>() : nullptr;
  float* rstd = args.rstd ? args.rstd.data_as<float>() : nullptr;
  const int64_t cols = args.x.cols();
  const int64_t x_stride = row_stride("residual_norm", "x", args.x);
  const int64_t residual_stride = row_stride("residual_norm", "residual", args.residual);
  const int64_t sum_stride = row_stride("residual_norm", "sum", args.sum);
  const int64_t y_stride = row_stride("residual_norm", "y", args.y);
  const auto eps = static_cast<float>(args.eps);
  const bool past = past_caches(args.y, args.x, args.residual, args.sum);
  const bool keeps = past && cols <= kKeptColumns && past_caches(args.sum, args.x, args.residual);
  const bool layer = args.kind == NormKind::layer;
  parallel_for(args.x.rows(), norm_row_grain(cols, past), [&](int64_t begin, int64_t end) {
    T kept[kKeptColumns];
    for (int64_t r = begin; r < end; ++r) {
      T* row = keeps ? kept : sum + r * sum_stride;
      T* out = y + r * y_stride;
      add_rows(x + r * x_stride, residual + r * residual_stride, row, cols);
      const int64_t next = r + 1 < end ? r + 1 : r;
      const RowStatistics s = layer ? layer_statistics(row, cols, eps, x + next * x_stride,
                                                       residual + next * residual_stride)
                                    : rms_statistics(row, cols, eps);
      if (layer) {
        layer_normalise(row, s, gamma, beta, out, cols, past);
      } else {
        rms_normalise(row, s, gamma, out, cols, past);
      }
      if (keeps) copy_bytes(sum + r * sum_stride, kept, cols * size_of(args.x.dtype()), true);
      if (mean != nullptr) mean[r] = s.mean;
      if (rstd != nullptr) rstd[r] = s.rstd;
    }
    if (past) flush_past_caches();
  });
}

void residual_norm_forward_vectors(const ResidualNormForward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { forward<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(residual_norm_forward_vectors);

void residual_norm_forward_lanes(const ResidualNormForward& args) {
  HWY_DYNAMIC_DISPATCH(residual_norm_forward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
