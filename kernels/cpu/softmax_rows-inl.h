// kernels/cpu/softmax_rows-inl.h: maximum and exponential sum of a row, shared by softmax and
// cross-entropy.
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_SOFTMAX_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_SOFTMAX_ROWS_INL_H_
#undef ZINC_KERNELS_CPU_SOFTMAX_ROWS_INL_H_
#else
#define ZINC_KERNELS_CPU_SOFTMAX_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// max = max_c x[c], sum = sum_c exp(x[c] - shift()). A NaN anywhere makes sum NaN.
struct RowSum {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;

  // 0 where all is -infinity, so that exponentials are 0 and not NaN.
  float shift() const { return max == -std::numeric_limits<float>::infinity() ? 0.0f : max; }
};

// Columns whose exponentials are summed against one maximum, so that a row is read from memory
// once: the block is still in the first-level cache on the second look.
inline constexpr int64_t kSoftmaxBlock = 2048;

template <class T>
HWY_INLINE float max_of(const T* x, int64_t n) {
  const Lanes d;
  const int64_t lanes = lane_count();
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto m0 = lowest, m1 = lowest;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, load_lanes(x + i));
    m1 = hn::Max(m1, load_lanes(x + i + lanes));
  }
  float rest = -std::numeric_limits<float>::infinity();
  for (; i < n; ++i) rest = std::max(rest, static_cast<float>(x[i]));
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1))));
}

// sum of exp(scale * x[i] - shift), the argument rounded once; `emit(i, value, store)` sees every
// vector of exponentials. Lanes are added up in order, whole vectors first, two sums in turn.
template <class T, class Emit>
HWY_INLINE float exp_sum(const T* x, int64_t n, float scale, float shift, const Emit& emit) {
  const Lanes d;
  const int64_t lanes = lane_count();
  const auto scales = hn::Set(d, scale);
  const auto shifts = hn::Set(d, shift);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  int64_t i = 0;
  const auto whole = [](LaneVec value, auto* to) HWY_ATTR { store_lanes(value, to); };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto e0 = exp_bounded_lanes(hn::MulSub(load_lanes(x + i), scales, shifts));
    const auto e1 = exp_bounded_lanes(hn::MulSub(load_lanes(x + i + lanes), scales, shifts));
    s0 = hn::Add(s0, e0);
    s1 = hn::Add(s1, e1);
    emit(i, e0, whole);
    emit(i + lanes, e1, whole);
  }
  for (; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    const auto loaded = count == lanes ? load_lanes(x + i) : load_some_lanes(x + i, count);
    const auto e = exp_bounded_lanes(hn::MulSub(loaded, scales, shifts));
    s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), e));
    emit(i, e, [count](LaneVec value, auto* to) HWY_ATTR { store_some_lanes(value, to, count); });
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

// Adds the next `n` <= kSoftmaxBlock elements to the sum of a row, whose maximum may grow:
// `shifted()` is called when it is known, then `emit` sees their exponentials against it.
template <class T, class Shifted, class Emit>
HWY_INLINE void add_block(const T* x, int64_t n, RowSum& row, const Shifted& shifted,
                          const Emit& emit) {
  const float before = row.max;
  row.max = std::max(before, max_of(x, n));
  const float keep = row.max == before ? 1.0f : std::exp(before - row.max);
  shifted();
  row.sum = row.sum * keep + exp_sum(x, n, 1.0f, row.shift(), emit);
}

template <class T>
HWY_INLINE RowSum row_sum(const T* x, int64_t n) {
  RowSum row;
  for (int64_t begin = 0; begin < n; begin += kSoftmaxBlock) {
    // Memory works on the next block while this one is computed on.
    const T* next = x + std::min(begin + kSoftmaxBlock, n - 1);
    const int64_t ahead = n - 1 - begin - kSoftmaxBlock;
    add_block(
        x + begin, std::min(kSoftmaxBlock, n - begin), row, [] {},
        [=](int64_t c, LaneVec, auto) HWY_ATTR {
          if (c < ahead) hwy::Prefetch(next + c);
        });
  }
  return row;
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
