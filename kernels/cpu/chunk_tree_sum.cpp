#include "kernels/chunk_tree_sum.h"

#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {

// One chunk of 1024 elements leaves one number: a single thread is enough.
void chunk_tree_sum(const ChunkTreeSum& args) {
  const double* sums = args.sums.data_as<double>();
  double* out = args.out.data_as<double>();
  const auto leaf = [&](int64_t i) { return sums[i]; };
  const int64_t n = args.sums.numel();
  if (args.root) {
    *out = n == 0 ? 0.0 : sum_tree<double>(0, n, leaf);
    return;
  }
  for (const ChunkSubtree& node : chunk_subtrees(args.begin, args.begin + n)) {
    const int64_t first = node.first - args.begin;
    *out++ = sum_tree<double>(first, first + node.width, leaf);
  }
}

}  // namespace zinc::kernels::cpu
