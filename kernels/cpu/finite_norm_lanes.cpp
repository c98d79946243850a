// The f32, bf16 and f16 paths of finite_norm's chunk sums.
#include "kernels/finite_norm.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/finite_norm_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/parallel.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// The sum of squares of up to kNormChunk elements: 16 f64 lanes, then a tree of lanes.
#if ZINC_PORTABLE_LANES
template <class T>
double chunk_square_sum(const T* x, int64_t n) {
  return sum_block<double>(0, n, [=](int64_t i) {
    const double value{static_cast<float>(x[i])};
    return value * value;
  });
}
#else
template <class T>
double chunk_square_sum(const T* x, int64_t n) {
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

void chunk_square_sums_vectors(const ConstView& view, double* sums) {
  constexpr int64_t kChunksPerTurn = 16;
  const int64_t n = view.numel();
  dispatch_short_float(view.dtype(), [&]<class T>() {
    const T* x = view.data_as<T>();
    parallel_for(num_norm_chunks(n), kChunksPerTurn, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t first = k * kNormChunk;
        sums[k] = chunk_square_sum(x + first, std::min(kNormChunk, n - first));
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(chunk_square_sums_vectors);

void chunk_square_sums_lanes(const ConstView& x, double* sums) {
  HWY_DYNAMIC_DISPATCH(chunk_square_sums_vectors)(x, sums);
}

}  // namespace zinc::kernels::cpu
#endif
