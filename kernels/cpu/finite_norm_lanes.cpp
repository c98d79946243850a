// The f32, bf16 and f16 paths of finite_norm's chunk sums.
#include "kernels/finite_norm.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/finite_norm_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/parallel.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/square_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

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
