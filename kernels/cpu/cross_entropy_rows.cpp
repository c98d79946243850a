// Parallel over rows. A row is read from memory once, in blocks that stay in the first-level cache
// between maximum and sum; with a gradient it is read again and written.
#include "kernels/cpu/cross_entropy_rows.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cross_entropy.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
float log_sum_exp_of(const T* x, int64_t n) {
  const RowSum row = row_sum(x, n);
  return row.shift() + std::log(row.sum);
}

// Forward over the row, so that dx may start where x starts and be narrower.
template <class T, class U>
void gradient_of(const T* x, int64_t n, const RowGradient& row, U* dx, bool past) {
  const Lanes d;
  const auto [lse, label, scale, off_label, off_elsewhere] = row;
  const float at_label = label < 0 ? 0.0f : static_cast<float>(x[label]);
  const auto shift = hn::Set(d, lse);
  const auto factor = hn::Set(d, scale);
  const auto off = hn::Set(d, off_elsewhere);
  for_each_vector(
      n,
      [&](int64_t c, auto load, auto store) HWY_ATTR {
        const auto share = exp_bounded_lanes(hn::Sub(load(x + c), shift));
        store(hn::Mul(hn::Sub(share, off), factor), dx + c);
      },
      past);
  if (label >= 0) dx[label] = U((std::exp(at_label - lse) - off_label) * scale);
}

float log_sum_exp(const void* x, DType dtype, int64_t n) {
  switch (dtype) {
    case DType::bf16:
      return log_sum_exp_of(static_cast<const bf16*>(x), n);
    case DType::f16:
      return log_sum_exp_of(static_cast<const f16*>(x), n);
    default:
      return log_sum_exp_of(static_cast<const float*>(x), n);
  }
}

void gradient(const void* x, DType dtype, int64_t n, const RowGradient& row, void* dx,
              DType dx_dtype, bool past) {
  if (dtype == DType::bf16) {
    return gradient_of(static_cast<const bf16*>(x), n, row, static_cast<bf16*>(dx), past);
  }
  if (dtype == DType::f16) {
    return gradient_of(static_cast<const f16*>(x), n, row, static_cast<f16*>(dx), past);
  }
  const auto* from = static_cast<const float*>(x);
  if (dx_dtype == DType::bf16) return gradient_of(from, n, row, static_cast<bf16*>(dx), past);
  if (dx_dtype == DType::f16) return gradient_of(from, n, row, static_cast<f16*>(dx), past);
  return gradient_of(from, n, row, static_cast<float*>(dx), past);
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {
namespace {

HWY_EXPORT(log_sum_exp);
HWY_EXPORT(gradient);

int64_t label_at(const ConstView& labels, int64_t r) {
  return labels.dtype() == DType::i64 ? labels.data_as<int64_t>()[r]
                                      : int64_t{labels.data_as<int32_t>()[r]};
}

void check_labels(std::string_view op, const ConstView& labels, int64_t classes) {
  for (int64_t r = 0; r < labels.numel(); ++r) {
    const int64_t label = label_at(labels, r);
    require((label >= 0 && label < classes) || label == kIgnoredLabel, op, ": label ", label,
            " of row ", r, " is neither a class in [0, ", classes, ") nor ", kIgnoredLabel,
            " (ignored)");
  }
}

double log_sum_exp_f64(const double* x, int64_t n) {
  const double max = *std::max_element(x, x + n);
  if (std::isinf(max) && max < 0) return max;
  double sum = 0.0;
  for (int64_t c = 0; c < n; ++c) sum += std::exp(x[c] - max);
  return max + std::log(sum);
}

void row_f64(const CrossEntropyRows& args, int64_t r, int64_t label, double scale) {
  const double* x = static_cast<const double*>(args.logits) + r * args.logits_stride;
  const double lse = args.lse != nullptr ? static_cast<const double*>(args.lse)[r]
                                         : log_sum_exp_f64(x, args.classes);
  if (args.lse_out != nullptr) static_cast<double*>(args.lse_out)[r] = lse;
  if (args.row_loss != nullptr) {
    const double at_label = label < 0 ? 0.0 : x[label];
    args.row_loss[r] = (args.slice.total > 0 ? 0.0 : lse) - at_label;
    if (args.smoothing > 0.0) {
      double sum = 0.0;
      for (int64_t c = 0; c < args.classes; ++c) sum += x[c];
      args.row_loss[r] +=
          args.smoothing * (at_label - sum / static_cast<double>(args.all_classes()));
    }
  }
  if (args.dlogits == nullptr) return;
  double* dx = static_cast<double*>(args.dlogits) + r * args.dlogits_stride;
  for (int64_t c = 0; c < args.classes; ++c) {
    const double off = c == label ? args.off_label() : args.off_elsewhere();
    dx[c] = scale * (std::exp(x[c] - lse) - off);
  }
}

// Adds in f64, in the order of the columns.
double sum_of_row(const void* x, DType dtype, int64_t n) {
  double sum = 0.0;
  const auto add = [&]<class T>(const T* values) {
    for (int64_t i = 0; i < n; ++i) sum += double{static_cast<float>(values[i])};
  };
  switch (dtype) {
    case DType::bf16:
      add(static_cast<const bf16*>(x));
      break;
    case DType::f16:
      add(static_cast<const f16*>(x));
      break;
    default:
      add(static_cast<const float*>(x));
  }
  return sum;
}

float value_at(const void* x, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<float>(static_cast<const bf16*>(x)[i]);
    case DType::f16:
      return static_cast<float>(static_cast<const f16*>(x)[i]);
    default:
      return static_cast<const float*>(x)[i];
  }
}

void row_f32(const CrossEntropyRows& args, int64_t r, int64_t label, float scale, bool past) {
  const auto* x =
      static_cast<const char*>(args.logits) + r * args.logits_stride * size_of(args.dtype);
  const float lse = args.lse != nullptr
                        ? static_cast<const float*>(args.lse)[r]
                        : HWY_DYNAMIC_DISPATCH(log_sum_exp)(x, args.dtype, args.classes);
  if (args.lse_out != nullptr) static_cast<float*>(args.lse_out)[r] = lse;
  if (args.row_loss != nullptr) {
    const double at_label = label < 0 ? 0.0 : double{value_at(x, args.dtype, label)};
    args.row_loss[r] = (args.slice.total > 0 ? 0.0 : double{lse}) - at_label;
    if (args.smoothing > 0.0) {
      const double mean =
          sum_of_row(x, args.dtype, args.classes) / static_cast<double>(args.all_classes());
      args.row_loss[r] += args.smoothing * (at_label - mean);
    }
  }
  if (args.dlogits == nullptr) return;
  auto* dx =
      static_cast<char*>(args.dlogits) + r * args.dlogits_stride * size_of(args.dlogits_dtype);
  const RowGradient row{.lse = lse,
                        .label = label,
                        .scale = scale,
                        .off_label = static_cast<float>(args.off_label()),
                        .off_elsewhere = static_cast<float>(args.off_elsewhere())};
  HWY_DYNAMIC_DISPATCH(gradient)
  (x, args.dtype, args.classes, row, dx, args.dlogits_dtype, past);
}

void ignored_row(const CrossEntropyRows& args, int64_t r) {
  const bool wide = args.dtype == DType::f64;
  if (args.lse_out != nullptr) {
    if (wide) {
      static_cast<double*>(args.lse_out)[r] = 0.0;
    } else {
      static_cast<float*>(args.lse_out)[r] = 0.0f;
    }
  }
  if (args.row_loss != nullptr) args.row_loss[r] = 0.0;
  if (args.dlogits == nullptr) return;
  const int64_t size = size_of(args.dlogits_dtype);
  auto* dx = static_cast<char*>(args.dlogits) + r * args.dlogits_stride * size;
  std::fill(dx, dx + args.classes * size, char{0});
}

}  // namespace

void cross_entropy_rows(std::string_view op, const CrossEntropyRows& args) {
  check_labels(op, args.labels, args.all_classes());
  const bool wide = args.dtype == DType::f64;
  double scale = args.scale;
  if (args.factor != nullptr) {
    scale *= wide ? *static_cast<const double*>(args.factor)
                  : double{*static_cast<const float*>(args.factor)};
  }
  const bool past = args.dlogits != nullptr && args.dlogits != args.logits &&
                    past_caches(args.rows * args.classes * size_of(args.dlogits_dtype));
  parallel_for(args.rows, 1, [&](int64_t r, int64_t) {
    int64_t label = label_at(args.labels, r);
    if (label == kIgnoredLabel) {
      ignored_row(args, r);
      if (past) flush_past_caches();
      return;
    }
    label -= args.slice.first;
    if (label < 0 || label >= args.classes) label = -1;
    if (wide) {
      row_f64(args, r, label, scale);
    } else {
      row_f32(args, r, label, static_cast<float>(scale), past);
    }
    if (past) flush_past_caches();
  });
}

void sum_row_losses(const double* row_loss, int64_t rows, const View& loss) {
  double sum = 0.0;
  for (int64_t r = 0; r < rows; ++r) sum += row_loss[r];
  if (loss.dtype() == DType::f64) {
    *loss.data_as<double>() = sum;
  } else {
    *loss.data_as<float>() = static_cast<float>(sum);
  }
}

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
