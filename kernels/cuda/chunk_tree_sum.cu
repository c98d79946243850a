// f64 sums over the tree of chunk indices: a block per tree; in each round its threads take one
// leaf each, whose tree is a node of the tree of rounds. Traffic: 8 bytes a leaf.
#include "kernels/chunk_tree_sum.h"

#include <algorithm>

#include "kernels/cuda/index_tree.h"
#include "kernels/cuda/launch.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr size_t kMaxTrees = 128;  // trees of a launch

struct Trees {
  ChunkSubtree at[kMaxTrees];
};

__global__ void __launch_bounds__(kThreads)
    tree_kernel(const double* sums, Trees trees, double* out) {
  ZINC_SHARED(double, leaves, [kThreads]);
  ZINC_SHARED(double, levels, [kTreeLevels]);
  const double* first = sums + trees.at[blockIdx.x].first;
  const int64_t width = trees.at[blockIdx.x].width;
  const int index = static_cast<int>(threadIdx.x);
  TreeOfParts<double> tree{levels};
  for (int64_t base = 0; base < width; base += kThreads) {
    if (base + index < width) leaves[index] = first[base + index];
    __syncthreads();
    const int64_t left = width - base;
    fold_shared_tree(leaves, index, static_cast<int>(left < kThreads ? left : kThreads), Add{});
    // Thread 0 alone reads this leaf, and writes it in the next round: no barrier is needed.
    if (index == 0) tree.push(leaves[0], Add{});
  }
  if (index == 0) out[blockIdx.x] = tree.total(0.0, Add{});
}

}  // namespace

void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream) {
  for (size_t begin = 0; begin < args.trees.size(); begin += kMaxTrees) {
    const size_t count = std::min(kMaxTrees, args.trees.size() - begin);
    Trees trees{};
    std::copy_n(args.trees.begin() + static_cast<ptrdiff_t>(begin), count, trees.at);
    launch(tree_kernel, dim3(static_cast<unsigned>(count)), dim3(kThreads), 0, stream,
           args.sums.data_as<double>(), trees, args.out.data_as<double>() + begin);
  }
}

}  // namespace zinc::kernels::cuda
