// kernels/cpu/square_sum-inl.h: the sum of squares of a chunk, in the order that
// kernels/finite_norm.h states.
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_SQUARE_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_SQUARE_SUM_INL_H_
#undef ZINC_KERNELS_CPU_SQUARE_SUM_INL_H_
#else
#define ZINC_KERNELS_CPU_SQUARE_SUM_INL_H_
#endif

#include "kernels/cpu/short_float.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// The sum of squares of up to kSumBlock elements: 16 f64 lanes, then a tree of lanes.
#if ZINC_PORTABLE_LANES
template <class T>
HWY_INLINE double chunk_square_sum(const T* x, int64_t n) {
  return sum_block<double>(0, n, [=](int64_t i) {
    const double value{static_cast<float>(x[i])};
    return value * value;
  });
}
#else
template <class T>
HWY_INLINE double chunk_square_sum(const T* x, int64_t n) {
  const hn::Repartition<double, Lanes> wide;
  const hn::Half<Lanes> half;
  using WideVec = hn::Vec<decltype(wide)>;
  WideVec low[kSumParts], high[kSumParts];
  for (size_t p = 0; p < kSumParts; ++p) low[p] = high[p] = hn::Zero(wide);
  // Lanes beyond the chunk read 0. Squares of f32 are exact in f64, so a fused multiply-add rounds
  // as a multiplication and an addition do.
  for_each_sum_vector(n,
                      [&]<size_t kPart>(int64_t i, SumPart<kPart>, auto load, auto, auto) HWY_ATTR {
                        const auto value = load(x + i);
                        const auto a = hn::PromoteTo(wide, hn::LowerHalf(half, value));
                        const auto b = hn::PromoteTo(wide, hn::UpperHalf(half, value));
                        low[kPart] = hn::MulAdd(a, a, low[kPart]);
                        high[kPart] = hn::MulAdd(b, b, high[kPart]);
                      });
  constexpr size_t kWidth = HWY_LANES(float);
  double lane[kSumLanes];
  for (size_t p = 0; p < kSumParts; ++p) {
    hn::StoreU(low[p], wide, lane + p * kWidth);
    hn::StoreU(high[p], wide, lane + p * kWidth + kWidth / 2);
  }
  for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
