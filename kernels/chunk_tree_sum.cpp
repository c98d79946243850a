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

double combine_chunk_subtrees(std::span<const ChunkSubtree> nodes, std::span<const double> sums) {
  constexpr auto kOp = "combine_chunk_subtrees";
  require(nodes.size() == sums.size(), kOp, ": ", nodes.size(), " subtrees and ", sums.size(),
          " sums");
  // Two neighbours of one width whose left one starts at a multiple of twice that width make one.
  std::vector<ChunkSubtree> open;
  std::vector<double> value;
  int64_t next = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ChunkSubtree& node = nodes[i];
    require(node.first == next && node.width > 0 &&
                std::has_single_bit(static_cast<uint64_t>(node.width)) &&
                node.first % node.width == 0,
            kOp, ": the subtree of ", node.width, " leaves from ", node.first,
            " does not continue at leaf ", next);
    next = node.first + node.width;
    open.push_back(node);
    value.push_back(sums[i]);
    while (open.size() >= 2) {
      ChunkSubtree& left = open[open.size() - 2];
      if (left.width != open.back().width || left.first % (2 * left.width) != 0) break;
      left.width *= 2;
      open.pop_back();
      const double right = value.back();
      value.pop_back();
      value.back() = value.back() + right;
    }
  }
  // What is left has falling widths: the absent leaves are on the right of each.
  if (value.empty()) return 0.0;
  double total = value.back();
  for (size_t i = value.size() - 1; i > 0; --i) total = value[i - 1] + total;
  return total;
}

void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream) {
  constexpr auto kOp = "chunk_tree_sum";
  require_operand(kOp, "sums", args.sums, DType::f64, args.sums.shape());
  require(args.sums.rank() == 1, kOp, ": sums must be [n], not ", args.sums.shape());
  require_contiguous(kOp, "sums", args.sums);
  require(args.begin >= 0 && (!args.root || args.begin == 0), kOp,
          ": begin must be 0 for the root, and never negative: ", args.begin);
  const int64_t nodes =
      args.root
          ? 1
          : static_cast<int64_t>(chunk_subtrees(args.begin, args.begin + args.sums.numel()).size());
  require_dense_operand(kOp, "out", args.out, DType::f64, Shape{nodes});
  require_apart(kOp, "out", args.out, "sums", args.sums);
  require_same_device(kOp, {args.sums, args.out});
  if (nodes == 0) return;
  run_on_device(
      kOp, args, args.sums.device(), stream, [args] { cpu::chunk_tree_sum(args); },
      [&] { cuda::chunk_tree_sum(args, stream); });
}

Cost cost(const ChunkTreeSum& args) {
  return {.bytes_read = args.sums.bytes(),
          .bytes_written = args.out.bytes(),
          .flops = std::max<int64_t>(0, args.sums.numel() - args.out.numel())};
}

}  // namespace zinc::kernels
