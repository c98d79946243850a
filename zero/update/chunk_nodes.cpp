#include "zero/update/chunk_nodes.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/transfer.h"
#include "kernels/finite_norm.h"

namespace zinc::zero {
namespace {

static_assert(kNormChunk == kernels::kNormChunk);

// Chunks of `placement`, counted from its own start, that lie in `range` of the arena.
Range chunks_inside(const Placement& placement, const Range& range) {
  const Range inside = intersect(placement.range(), range);
  if (inside.empty()) return {0, 0};
  return {(inside.begin - placement.offset) / kNormChunk,
          (inside.end - placement.offset + kNormChunk - 1) / kNormChunk};
}

template <class Visit>
void for_each_piece(const ShardGroup& group, const OwnedRange& owned, const Visit& visit) {
  for (size_t i = 0; i < group.placements().size(); ++i) {
    const Placement& placement = group.placements()[i];
    if (!is_trained(placement.segment)) continue;
    const Range chunks = chunks_inside(placement, owned.range);
    if (!chunks.empty())
      visit(ParameterIndex{group.index(), static_cast<int>(i)}, placement, chunks);
  }
}

}  // namespace

ChunkNodes::ChunkNodes(const ShardGroups& groups, const std::vector<std::vector<OwnedRange>>& owned)
    : nodes_(owned.size()), first_of_slice_(owned.size()) {
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    std::vector<Node>& nodes = nodes_[rank];
    for (const OwnedRange& piece : owned[rank]) {
      bug_check(piece.range.begin % kNormChunk == 0 && piece.range.end % kNormChunk == 0,
                "sums of chunks: a range that cuts a chunk");
      first_of_slice_[rank].push_back(static_cast<int64_t>(nodes.size()));
      for_each_piece(
          groups[piece.group], piece, [&](ParameterIndex index, const Placement&, Range chunks) {
            for (const auto& subtree : kernels::chunk_subtrees(chunks.begin, chunks.end)) {
              nodes.push_back({index, subtree});
            }
          });
    }
    first_of_slice_[rank].push_back(static_cast<int64_t>(nodes.size()));
    for (size_t i = 0; i < nodes.size(); ++i) {
      leaves_.push_back({nodes[i], static_cast<int>(rank), i});
    }
  }
  std::stable_sort(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) {
    const auto key = [](const Leaf& leaf) {
      return std::tuple(leaf.node.parameter.group, leaf.node.parameter.position,
                        leaf.node.subtree.first);
    };
    return key(a) < key(b);
  });
}

std::vector<kernels::ChunkSubtree> ChunkNodes::trees_of(const ShardGroup& group,
                                                        const OwnedRange& slice) {
  std::vector<kernels::ChunkSubtree> trees;
  for_each_piece(group, slice, [&](ParameterIndex, const Placement& placement, Range chunks) {
    // Index of the parameter's first chunk, which another rank may have.
    const int64_t origin = (placement.offset - slice.range.begin) / kNormChunk;
    for (const auto& [first, width] : kernels::chunk_subtrees(chunks.begin, chunks.end)) {
      trees.push_back({origin + first, width});
    }
  });
  return trees;
}

std::vector<std::span<const ChunkNodes::Leaf>> ChunkNodes::by_parameter() const {
  std::vector<std::span<const Leaf>> all;
  for (size_t begin = 0, end = 0; begin < leaves_.size(); begin = end) {
    while (end < leaves_.size() && leaves_[end].node.parameter == leaves_[begin].node.parameter) {
      ++end;
    }
    all.emplace_back(leaves_.data() + begin, end - begin);
  }
  return all;
}

int64_t ChunkNodes::longest() const {
  size_t most = 0;
  for (const auto& nodes : nodes_) most = std::max(most, nodes.size());
  return static_cast<int64_t>(most);
}

std::vector<std::vector<double>> ChunkNodes::exchange(const std::vector<double>& own,
                                                      comm::Communicator& communicator,
                                                      StreamRef stream) const {
  if (nodes_.size() == 1) return {own};
  const auto length = static_cast<size_t>(longest());
  std::vector<double> padded = own;
  padded.resize(length, 0.0);
  const Tensor mine = Tensor::empty({longest()}, DType::f64, Label::workspace);
  const Tensor all = Tensor::empty({longest() * communicator.size()}, DType::f64, Label::workspace);
  upload(padded.data(), mine.view(), stream);
  communicator.all_gather({.shard = mine.view(), .out = all.view()}, stream).wait();
  const std::vector<double> values = all.to_vector<double>();
  std::vector<std::vector<double>> by_rank;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(rank * length);
    by_rank.emplace_back(begin, begin + std::ssize(nodes_[rank]));
  }
  return by_rank;
}

double ChunkNodes::sum(std::span<const Leaf> leaves,
                       const std::vector<std::vector<double>>& values) {
  std::vector<kernels::ChunkSubtree> subtrees;
  std::vector<double> sums;
  for (const Leaf& leaf : leaves) {
    subtrees.push_back(leaf.node.subtree);
    sums.push_back(values[static_cast<size_t>(leaf.rank)][leaf.place]);
  }
  return kernels::combine_chunk_subtrees(subtrees, sums);
}

}  // namespace zinc::zero
