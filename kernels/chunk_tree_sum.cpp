#include "kernels/chunk_tree_sum.h"

#include <algorithm>
#include <bit>

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void chunk_tree_sum(const ChunkTreeSum& args);
}  // namespace cpu
namespace cuda {
void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream);
}  // namespace cuda

std::vector<ChunkSubtree> chunk_subtrees(int64_t begin, int64_t end) {
  require(begin >= 0 && begin <= end, "chunk_subtrees: [", begin, ", ", end, ") is no range");
  std::vector<ChunkSubtree> nodes;
  while (begin < end) {
    const int64_t fits = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(end - begin)));
    const int64_t aligned = begin == 0 ? fits : begin & -begin;
    const int64_t width = std::min(fits, aligned);
    nodes.push_back({begin, width});
    begin += width;
  }
  return nodes;
}

std::vector<SubtreeMerge> chunk_subtree_merges(std::span<const ChunkSubtree> nodes) {
  // Two neighbours of one width whose left one starts at a multiple of twice that width make one.
  struct Open {
    ChunkSubtree tree;
    int64_t node;
  };
  std::vector<Open> open;
  std::vector<SubtreeMerge> merges;
  int64_t next = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ChunkSubtree& node = nodes[i];
    require(node.first == next && node.width > 0 &&
                std::has_single_bit(static_cast<uint64_t>(node.width)) &&
                node.first % node.width == 0,
            "combine_chunk_subtrees: the subtree of ", node.width, " leaves from ", node.first,
            " does not continue at leaf ", next);
    next = node.first + node.width;
    open.push_back({node, static_cast<int64_t>(i)});
    while (open.size() >= 2) {
      Open& left = open[open.size() - 2];
      if (left.tree.width != open.back().tree.width ||
          left.tree.first % (2 * left.tree.width) != 0) {
        break;
      }
      left.tree.width *= 2;
      merges.push_back({left.node, open.back().node});
      open.pop_back();
    }
  }
  // The open subtrees have falling widths: the absent leaves are on the right of each.
  for (size_t i = open.size(); i > 1; --i) merges.push_back({open[i - 2].node, open[i - 1].node});
  return merges;
}

double combine_chunk_subtrees(std::span<const ChunkSubtree> nodes, std::span<const double> sums) {
  require(nodes.size() == sums.size(), "combine_chunk_subtrees: ", nodes.size(), " subtrees and ",
          sums.size(), " sums");
  std::vector<double> value(sums.begin(), sums.end());
  for (const SubtreeMerge& merge : chunk_subtree_merges(nodes)) {
    double& left = value[static_cast<size_t>(merge.left)];
    left = left + value[static_cast<size_t>(merge.right)];
  }
  return value.empty() ? 0.0 : value.front();
}

void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream) {
  constexpr auto kOp = "chunk_tree_sum";
  require_operand(kOp, "sums", args.sums, DType::f64, args.sums.shape());
  require(args.sums.rank() == 1, kOp, ": sums must be [n], not ", args.sums.shape());
  require_contiguous(kOp, "sums", args.sums);
  const auto count = static_cast<int64_t>(args.trees.size());
  for (const ChunkSubtree& tree : args.trees) {
    require(tree.first >= 0 && tree.width >= 0 && tree.first + tree.width <= args.sums.numel(), kOp,
            ": a tree of [", tree.first, ", ", tree.first + tree.width, ") in ", args.sums.numel(),
            " sums");
  }
  require_dense_operand(kOp, "out", args.out, DType::f64, Shape{count});
  require_apart(kOp, "out", args.out, "sums", args.sums);
  require_same_device(kOp, {args.sums, args.out});
  if (count == 0) return;
  run_on_device(
      kOp, args, args.sums.device(), stream, [args] { cpu::chunk_tree_sum(args); },
      [&] { cuda::chunk_tree_sum(args, stream); });
}

Cost cost(const ChunkTreeSum& args) {
  int64_t leaves = 0;
  for (const ChunkSubtree& tree : args.trees) leaves += tree.width;
  return {.bytes_read = leaves * int64_t{sizeof(double)},
          .bytes_written = args.out.bytes(),
          .flops = std::max<int64_t>(0, leaves - args.out.numel())};
}

}  // namespace zinc::kernels
