#include "kernels/chunk_tree_sum.h"

#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {

// One chunk of 1024 elements leaves one number: a single thread is enough.
void chunk_tree_sum(const ChunkTreeSum& args) {
  const double* sums = args.sums.data_as<double>();
  double* out = args.out.data_as<double>();
  const auto leaf = [&](int64_t i) { return sums[i]; };
  for (const auto& [first, width] : args.trees) {
    *out++ = width == 0 ? 0.0 : sum_tree<double>(first, first + width, leaf);
  }
}

}  // namespace zinc::kernels::cpu
