#include "kernels/chunk_tree_sum.h"

#include "kernels/cpu/row_sum.h"

namespace zinc::kernels {
namespace cpu {

// One chunk of 1024 elements leaves one number: a single thread is enough.
void chunk_tree_sum(const ChunkTreeSum& args) {
  const double* sums = args.sums.data_as<double>();
  double* out = args.out.data_as<double>();
  for (const auto& [first, width] : args.trees) {
    *out++ = sum_chunk_tree({sums + first, static_cast<size_t>(width)});
  }
}

}  // namespace cpu

double sum_chunk_tree(std::span<const double> sums) {
  if (sums.empty()) return 0.0;
  const auto leaf = [&](int64_t i) { return sums[static_cast<size_t>(i)]; };
  return cpu::sum_tree<double>(0, static_cast<int64_t>(sums.size()), leaf);
}

}  // namespace zinc::kernels
