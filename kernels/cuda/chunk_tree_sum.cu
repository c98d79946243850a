// f64 sums over the tree of chunk indices: a block per subtree; in each round its threads take one
// leaf each, whose tree is a node of the tree of rounds. Traffic: 8 bytes a leaf.
#include "kernels/chunk_tree_sum.h"

#include "kernels/cuda/index_tree.h"
#include "kernels/cuda/launch.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr size_t kMaxSubtrees = 128;  // a range of leaves has two for each bit of its ends, at most

struct Subtrees {
  int64_t first[kMaxSubtrees];  // in `sums`
  int64_t width[kMaxSubtrees];
};

__global__ void __launch_bounds__(kThreads)
    tree_kernel(const double* sums, Subtrees subtrees, double* out) {
  ZINC_SHARED(double, leaves, [kThreads]);
  ZINC_SHARED(double, levels, [kTreeLevels]);
  const double* first = sums + subtrees.first[blockIdx.x];
  const int64_t width = subtrees.width[blockIdx.x];
  const int index = static_cast<int>(threadIdx.x);
  TreeOfParts<double> tree{levels};
  for (int64_t base = 0; base < width; base += kThreads) {
    if (base + index < width) leaves[index] = first[base + index];
    __syncthreads();
    const int64_t left = width - base;
    fold_shared_tree(leaves, index, static_cast<int>(left < kThreads ? left : kThreads), Add{});
    if (index == 0) tree.push(leaves[0], Add{});
    __syncthreads();  // before the next leaves are written
  }
  if (index == 0) out[blockIdx.x] = tree.total(0.0, Add{});
}

}  // namespace

void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream) {
  const int64_t n = args.sums.numel();
  Subtrees subtrees{};
  size_t count = 0;
  const auto add = [&](int64_t first, int64_t width) {
    bug_check(count < kMaxSubtrees, "chunk_tree_sum: too many subtrees");
    subtrees.first[count] = first;
    subtrees.width[count] = width;
    ++count;
  };
  if (args.root) {
    add(0, n);
  } else {
    for (const ChunkSubtree& node : chunk_subtrees(args.begin, args.begin + n)) {
      add(node.first - args.begin, node.width);
    }
  }
  launch(tree_kernel, dim3(static_cast<unsigned>(count)), dim3(kThreads), 0, stream,
         args.sums.data_as<double>(), subtrees, args.out.data_as<double>());
}

}  // namespace zinc::kernels::cuda
