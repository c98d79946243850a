#include "kernels/tree_sum.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"

namespace zinc::kernels::cpu {

void tree_sum_lanes(const TreeSum& args);

namespace {

constexpr int64_t kBlock = 512;  // elements whose partial sums stay in the first-level cache
constexpr int64_t kGrain = 1 << 15;
constexpr int kLevels = 11;  // 2^10 arrays

// Note [Binary counter]
// Arrays are taken in order. Bit l of the number taken so far says that `partial[l]` holds the sum
// of a complete subtree of 2^l arrays; two of one size make one of the next, left plus right. At
// the end the subtrees that are left over are added from the smallest up, which is what skipping
// the absent leaves means.
void sum_block(const double* in, int64_t stride, int64_t count, double* out, bool accumulate,
               int64_t n) {
  std::array<std::array<double, kBlock>, kLevels> partial;
  for (int64_t r = 0; r < count; ++r) {
    int level = 0;
    while (((r >> level) & 1) != 0) ++level;
    double* sum = partial[static_cast<size_t>(level)].data();
    std::copy_n(in + r * stride, n, sum);
    for (int l = 0; l < level; ++l) {
      const double* left = partial[static_cast<size_t>(l)].data();
      for (int64_t i = 0; i < n; ++i) sum[i] = left[i] + sum[i];
    }
  }
  double* total = nullptr;
  for (int level = 0; level < kLevels; ++level) {
    if (((count >> level) & 1) == 0) continue;
    double* sum = partial[static_cast<size_t>(level)].data();
    for (int64_t i = 0; total != nullptr && i < n; ++i) sum[i] += total[i];
    total = sum;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = accumulate ? out[i] + total[i] : total[i];
}

}  // namespace

void tree_sum(const TreeSum& args) {
  if (args.in.dtype() != DType::f64) return tree_sum_lanes(args);
  const double* in = args.in.data_as<double>();
  double* out = args.out.data_as<double>();
  parallel_for(args.in.dim(1), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) {
      sum_block(in + i, args.in.stride(0), args.in.dim(0), out + i, args.accumulate,
                std::min(kBlock, end - i));
    }
  });
}

}  // namespace zinc::kernels::cpu
