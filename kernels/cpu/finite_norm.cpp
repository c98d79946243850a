#include "kernels/finite_norm.h"

#include <cmath>

#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {

void chunk_square_sums_lanes(const ConstView& x, double* sums);

namespace {

static_assert(kNormChunk == kSumBlock);

void chunk_square_sums(const ConstView& view, double* sums) {
  const double* x = view.data_as<double>();
  const int64_t n = view.numel();
  parallel_for(num_norm_chunks(n), 16, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k * kNormChunk;
      sums[k] = sum_block<double>(first, std::min(kNormChunk, n - first),
                                  [&](int64_t i) { return x[i] * x[i]; });
    }
  });
}

// Index of the first element of chunk k that is not finite; -1: none.
int64_t first_nonfinite_of(const ConstView& view, int64_t k) {
  const int64_t end = std::min(view.numel(), (k + 1) * kNormChunk);
  int64_t found = -1;
  dispatch_float(view.dtype(), [&]<class T>() {
    const T* x = view.data_as<T>();
    for (int64_t i = k * kNormChunk; i < end && found < 0; ++i) {
      if (!std::isfinite(AccumulatorOf<T>(x[i]))) found = i;
    }
  });
  return found;
}

}  // namespace

void finite_norm(const FiniteNorm& args) {
  double* sums = args.chunk_sums.data_as<double>();
  if (args.x.dtype() == DType::f64) {
    chunk_square_sums(args.x, sums);
  } else {
    chunk_square_sums_lanes(args.x, sums);
  }
  // A chunk with a NaN or an infinity has a sum that is not finite, so only such chunks are read
  // again. f64 squares may overflow without one.
  int64_t found = -1;
  for (int64_t k = 0; k < args.chunk_sums.numel() && found < 0; ++k) {
    if (!std::isfinite(sums[k])) found = first_nonfinite_of(args.x, k);
  }
  *args.first_nonfinite.data_as<int64_t>() = found;
}

}  // namespace zinc::kernels::cpu
