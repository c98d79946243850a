// kernels/cpu/norm_rows-inl.h: the norms of one row on vectors.
//
// Included once per Highway target, like lanes-inl.h. A row is read two or three times; it stays in
// the first-level cache.
#if defined(ZINC_KERNELS_CPU_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_NORM_ROWS_INL_H_
#undef ZINC_KERNELS_CPU_NORM_ROWS_INL_H_
#else
#define ZINC_KERNELS_CPU_NORM_ROWS_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

struct RowStatistics {
  float mean = 0.0f;  // 0 for the rms norm
  float rstd = 0.0f;
};

// Memory works on `next` (and `next2`, null: none), as long as x, while the squares are summed.
template <class T>
RowStatistics layer_statistics(const T* x, int64_t cols, float eps, const T* next,
                               const T* next2 = nullptr) {
  const auto count = static_cast<float>(cols);
  const float mean =
      sum_lanes(cols, [=](int64_t i, auto load) HWY_ATTR { return load(x + i); }) / count;
  const auto mean_lanes = hn::Set(Lanes(), mean);
  const float squares = sum_lanes(cols, [=](int64_t i, auto load) HWY_ATTR {
    hwy::Prefetch(next + i);
    if (next2 != nullptr) hwy::Prefetch(next2 + i);
    const auto centred = hn::Sub(load(x + i), mean_lanes);
    return hn::Mul(centred, centred);
  });
  return {mean, 1.0f / std::sqrt(squares / count + eps)};
}

template <class T>
RowStatistics rms_statistics(const T* x, int64_t cols, float eps) {
  const float squares = sum_lanes(cols, [=](int64_t i, auto load) HWY_ATTR {
    const auto value = load(x + i);
    return hn::Mul(value, value);
  });
  return {0.0f, 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps)};
}

// beta may be null. `past_caches` as in for_each_vector().
template <class T>
void layer_normalise(const T* x, const RowStatistics& s, const T* gamma, const T* beta, T* y,
                     int64_t cols, bool past_caches) {
  const auto mean = hn::Set(Lanes(), s.mean);
  const auto rstd = hn::Set(Lanes(), s.rstd);
  if (beta == nullptr) {
    for_each_vector(
        cols,
        [=](int64_t i, auto load, auto store) HWY_ATTR {
          const auto h = hn::Mul(hn::Sub(load(x + i), mean), rstd);
          store(hn::Mul(h, load(gamma + i)), y + i);
        },
        past_caches);
  } else {
    for_each_vector(
        cols,
        [=](int64_t i, auto load, auto store) HWY_ATTR {
          const auto h = hn::Mul(hn::Sub(load(x + i), mean), rstd);
          store(hn::MulAdd(h, load(gamma + i), load(beta + i)), y + i);
        },
        past_caches);
  }
}

template <class T>
void rms_normalise(const T* x, const RowStatistics& s, const T* gamma, T* y, int64_t cols,
                   bool past_caches) {
  const auto rstd = hn::Set(Lanes(), s.rstd);
  for_each_vector(
      cols,
      [=](int64_t i, auto load, auto store)
          HWY_ATTR { store(hn::Mul(hn::Mul(load(x + i), rstd), load(gamma + i)), y + i); },
      past_caches);
}

// One row of a backward pass.
template <class T>
struct NormGradientRow {
  const T* dy;
  const T* x;
  const T* gamma;
  const T* dresidual;  // null: none
  T* dx;
  int64_t cols;
  RowStatistics statistics;
  bool past_caches;  // for dx
};

// sum(g) and sum(g * h), and dgamma += dy * h, dbeta += dy where wanted (null: not).
struct NormGradientSums {
  float g = 0.0f;
  float gh = 0.0f;
};

template <bool kSumsParameters, bool kCentred, class T>
NormGradientSums norm_gradient_sums(const NormGradientRow<T>& row, float* dgamma, float* dbeta) {
  const auto mean = hn::Set(Lanes(), row.statistics.mean);
  const auto rstd = hn::Set(Lanes(), row.statistics.rstd);
  LaneSum sum_g;
  LaneSum sum_gh;
  // Lanes beyond the row read dy = 0 and add nothing.
  for_each_sum_vector(row.cols, [&](int64_t i, auto part, auto load, auto store, auto) HWY_ATTR {
    const auto dy = load(row.dy + i);
    const auto x = load(row.x + i);
    const auto h = hn::Mul(kCentred ? hn::Sub(x, mean) : x, rstd);
    const auto g = hn::Mul(dy, load(row.gamma + i));
    if constexpr (kCentred) sum_g.add(part, g);
    sum_gh.add(part, hn::Mul(g, h));
    if constexpr (kSumsParameters) {
      store(hn::MulAdd(dy, h, load(dgamma + i)), dgamma + i);
      if constexpr (kCentred) store(hn::Add(load(dbeta + i), dy), dbeta + i);
    }
  });
  return {kCentred ? sum_g.total() : 0.0f, sum_gh.total()};
}

template <bool kCentred, class T>
void norm_gradient_apply(const NormGradientRow<T>& row, const NormGradientSums& sums) {
  const auto count = static_cast<float>(row.cols);
  const auto mean = hn::Set(Lanes(), row.statistics.mean);
  const auto rstd = hn::Set(Lanes(), row.statistics.rstd);
  const auto mean_g = hn::Set(Lanes(), sums.g / count);
  const auto mean_gh = hn::Set(Lanes(), sums.gh / count);
  const auto gradient = [&](int64_t i, auto load) HWY_ATTR {
    const auto x = load(row.x + i);
    const auto h = hn::Mul(kCentred ? hn::Sub(x, mean) : x, rstd);
    auto g = hn::Mul(load(row.dy + i), load(row.gamma + i));
    if constexpr (kCentred) g = hn::Sub(g, mean_g);
    return hn::Mul(rstd, hn::NegMulAdd(h, mean_gh, g));
  };
  if (row.dresidual == nullptr) {
    for_each_vector(
        row.cols,
        [&](int64_t i, auto load, auto store) HWY_ATTR { store(gradient(i, load), row.dx + i); },
        row.past_caches);
  } else {
    for_each_vector(
        row.cols,
        [&](int64_t i, auto load, auto store)
            HWY_ATTR { store(hn::Add(gradient(i, load), load(row.dresidual + i)), row.dx + i); },
        row.past_caches);
  }
}

// total += run; run = 0.
inline void norm_fold(float* run, float* total, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto load, auto store) HWY_ATTR {
    store(hn::Add(load(static_cast<const float*>(total) + i),
                  load(static_cast<const float*>(run) + i)),
          total + i);
    store(hn::Zero(Lanes()), run + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
