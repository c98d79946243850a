// kernels/chunk_tree_sum.h: f64 sums over the fixed binary tree of chunk indices.
//
// Note [Chunk tree]
// For width 1, 2, 4, ... the partial sum at index i (a multiple of 2 * width) adds the partial sum
// at i + width; an absent leaf is skipped, never added as zero. Any range of indices splits into
// O(log n) maximal aligned subtrees, so that ranks which hold parts of one array send a few numbers
// each, and combine_chunk_subtrees() finishes the tree with the bits that one pass over the whole
// would have given: the norm does not depend on the partition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// Leaves [first, first + width) as one node; first is a multiple of width, a power of two.
struct ChunkSubtree {
  int64_t first = 0;
  int64_t width = 1;
  friend bool operator==(const ChunkSubtree&, const ChunkSubtree&) = default;
};

// The maximal aligned subtrees of the leaves [begin, end), in order of `first`.
std::vector<ChunkSubtree> chunk_subtrees(int64_t begin, int64_t end);

struct ChunkTreeSum {
  ConstView sums;  // [n] f64, contiguous
  // out[i] is the sum over the tree of sums [first, first + width), as if they were all the leaves
  // there are. Any width: 0 for none.
  std::vector<ChunkSubtree> trees{};
  View out{};  // [trees] f64, contiguous, overwrites
};

// Asynchronous on `stream`. Deterministic.
void chunk_tree_sum(const ChunkTreeSum& args, StreamRef stream);
Cost cost(const ChunkTreeSum& args);

// The sum over the tree of `sums`, as if they were all the leaves there are; 0 for none. Host
// memory; synchronous.
double sum_chunk_tree(std::span<const double> sums);

// A sum of two nodes: that of node `left` becomes that of left + right.
struct SubtreeMerge {
  int64_t left = 0;
  int64_t right = 0;
};
// The merges that add all nodes into the sum of node 0, in order. `nodes` as below.
std::vector<SubtreeMerge> chunk_subtree_merges(std::span<const ChunkSubtree> nodes);

// The sum over the whole tree. `nodes` are disjoint subtrees in order of `first` that together
// cover [0, number of leaves), `sums` their sums. Host memory; synchronous; 0 for no nodes.
double combine_chunk_subtrees(std::span<const ChunkSubtree> nodes, std::span<const double> sums);

}  // namespace zinc::kernels
