#include "kernels/tree_sum.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/parallel.h"

namespace zinc::kernels::cpu {

void tree_sum_lanes(const HostTreeSum& args, int64_t begin, int64_t end);
// Elements [begin, end) of the arrays.
void tree_sum_of_range(const HostTreeSum& args, int64_t begin, int64_t end);

namespace {

constexpr int64_t kBlock = 512;  // elements whose partial sums stay in the first-level cache
constexpr int64_t kGrain = 1 << 15;
constexpr int kLevels = 11;  // 2^10 arrays

// Note [Binary counter]
// Arrays are taken in order. Bit l of the number taken so far says that `partial[l]` holds the sum
// of a complete subtree of 2^l arrays; two of one size make one of the next, left plus right. At
// the end the subtrees that are left over are added from the smallest up, which is what skipping
// the absent leaves means.
void sum_leaves(const HostTreeSum& args, int64_t begin, int64_t n) {
  std::array<std::array<double, kBlock>, kLevels> partial;
  const size_t count = args.in.size();
  for (size_t r = 0; r < count; ++r) {
    int level = 0;
    while (((r >> level) & 1) != 0) ++level;
    double* sum = partial[static_cast<size_t>(level)].data();
    std::copy_n(reinterpret_cast<const double*>(args.in[r]) + begin, n, sum);
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
  double* out = reinterpret_cast<double*>(args.out) + begin;
  for (int64_t i = 0; i < n; ++i) out[i] = args.accumulate ? out[i] + total[i] : total[i];
}

}  // namespace

void tree_sum_of_range(const HostTreeSum& args, int64_t begin, int64_t end) {
  if (args.dtype != DType::f64) return tree_sum_lanes(args, begin, end);
  for (int64_t i = begin; i < end; i += kBlock) sum_leaves(args, i, std::min(kBlock, end - i));
}

void tree_sum(const TreeSum& args) {
  std::vector<const std::byte*> rows;
  for (int64_t r = 0; r < args.in.dim(0); ++r) {
    rows.push_back(static_cast<const std::byte*>(args.in.narrow(0, r, 1).data()));
  }
  const HostTreeSum sum{.in = rows,
                        .dtype = args.in.dtype(),
                        .n = args.in.dim(1),
                        .out = static_cast<std::byte*>(args.out.data()),
                        .out_dtype = args.out.dtype(),
                        .accumulate = args.accumulate};
  parallel_for(sum.n, kGrain,
               [&](int64_t begin, int64_t end) { tree_sum_of_range(sum, begin, end); });
}

}  // namespace zinc::kernels::cpu
