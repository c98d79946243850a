// kernels/cpu/sums-inl.h: sums of a row in 16 lanes, whatever the width of the vectors.
//
// Included once per Highway target, like lanes-inl.h. Lane l takes the elements l, l + 16, ...;
// lanes are then added as a binary tree (l takes l + 8, l + 4, l + 2, l + 1). So sums have the same
// bits on every target.
#if defined(ZINC_KERNELS_CPU_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_SUMS_INL_H_
#undef ZINC_KERNELS_CPU_SUMS_INL_H_
#else
#define ZINC_KERNELS_CPU_SUMS_INL_H_
#endif

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_sum.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Vectors that together are the 16 lanes.
inline constexpr size_t kSumParts = static_cast<size_t>(kSumLanes) / HWY_LANES(float);
template <size_t kPart>
using SumPart = std::integral_constant<size_t, kPart>;

// The first `count` lanes of a value, zero in the others.
HWY_INLINE LaneVec first_lanes(LaneVec value, int64_t count) {
  const Lanes d;
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), value);
}

class LaneSum {
 public:
  HWY_INLINE LaneSum() {
    for (LaneVec& part : part_) part = hn::Zero(Lanes());
  }
  template <size_t kPart>
  HWY_INLINE void add(SumPart<kPart>, LaneVec value) {
    part_[kPart] = hn::Add(part_[kPart], value);
  }
  HWY_INLINE float total() const {
    HWY_ALIGN float lane[kSumLanes];
    for (size_t p = 0; p < kSumParts; ++p) {
      hn::Store(part_[p], Lanes(), lane + p * HWY_LANES(float));
    }
#if ZINC_PORTABLE_LANES
    for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
      for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    return lane[0];
#else
    const hn::CappedTag<float, 4> d;
    const auto low = hn::Add(hn::Load(d, lane), hn::Load(d, lane + 8));
    const auto high = hn::Add(hn::Load(d, lane + 4), hn::Load(d, lane + 12));
    hn::Store(hn::Add(low, high), d, lane);
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
#endif
  }

 private:
  LaneVec part_[kSumParts];
};

// Calls body(i, part, load, store, mask) for the vectors of [0, n), where `part` is the SumPart
// whose lanes element i starts in, load and store are those of for_each_vector, and mask(value)
// clears the lanes that lie beyond n.
template <class Body>
HWY_INLINE void for_each_sum_vector(int64_t n, const Body& body) {
  constexpr auto kWidth = static_cast<int64_t>(HWY_LANES(float));
  const auto load = [](const auto* from) HWY_ATTR { return load_lanes(from); };
  const auto store = [](LaneVec value, auto* to) HWY_ATTR { store_lanes(value, to); };
  const auto keep = [](LaneVec value) HWY_ATTR { return value; };
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    [&]<size_t... kPart>(std::index_sequence<kPart...>) HWY_ATTR {
      (body(i + static_cast<int64_t>(kPart) * kWidth, SumPart<kPart>(), load, store, keep), ...);
    }
    (std::make_index_sequence<kSumParts>());
  }
  if (i == n) return;
  const auto tail = [&]<size_t kPart>(SumPart<kPart> part) HWY_ATTR {
    const int64_t first = i + static_cast<int64_t>(kPart) * kWidth;
    const int64_t count = std::min(kWidth, n - first);
    if (count == kWidth) {
      body(first, part, load, store, keep);
    } else if (count > 0) {
      body(
          first, part, [count](const auto* from) HWY_ATTR { return load_some_lanes(from, count); },
          [count](LaneVec value, auto* to) HWY_ATTR { store_some_lanes(value, to, count); },
          [count](LaneVec value) HWY_ATTR { return first_lanes(value, count); });
    }
  };
  [&]<size_t... kPart>(std::index_sequence<kPart...>) HWY_ATTR { (tail(SumPart<kPart>()), ...); }
  (std::make_index_sequence<kSumParts>());
}

// value(i, load) summed over the elements [0, n): one block of Note [Order of sums].
template <class Value>
HWY_INLINE float sum_lanes(int64_t n, const Value& value) {
  LaneSum sum;
  for_each_sum_vector(n, [&](int64_t i, auto part, auto load, auto, auto mask)
                             HWY_ATTR { sum.add(part, mask(value(i, load))); });
  return sum.total();
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
