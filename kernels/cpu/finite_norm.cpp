#include "kernels/finite_norm.h"

#include <cmath>

#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kChunksPerTurn = 16;
static_assert(kNormChunk == kSumBlock);

template <class T>
int64_t first_nonfinite_of(const T* x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (!std::isfinite(AccumulatorOf<T>(x[i]))) return i;
  }
  return -1;
}

}  // namespace

void finite_norm(const FiniteNorm& args) {
  const int64_t n = args.x.numel();
  const int64_t chunks = num_norm_chunks(n);
  double* sums = args.chunk_sums.data_as<double>();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    const T* x = args.x.data_as<T>();
    parallel_for(chunks, kChunksPerTurn, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t first = k * kNormChunk;
        sums[k] = sum_block<double>(first, std::min(kNormChunk, n - first), [&](int64_t i) {
          const auto value = static_cast<double>(AccumulatorOf<T>(x[i]));
          return value * value;
        });
      }
    });
    // A chunk with a NaN or an infinity has a sum that is not finite, so only such chunks are read
    // again. f64 squares may overflow without one.
    int64_t found = -1;
    for (int64_t k = 0; k < chunks && found < 0; ++k) {
      if (std::isfinite(sums[k])) continue;
      found = first_nonfinite_of(x, k * kNormChunk, std::min(n, (k + 1) * kNormChunk));
    }
    *args.first_nonfinite.data_as<int64_t>() = found;
  });
}

}  // namespace zinc::kernels::cpu
