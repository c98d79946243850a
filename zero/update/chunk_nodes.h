// zero/update/chunk_nodes.h: f64 sums over whole parameters, from the sums of the chunks that each
// rank has. The tree of the sums: Note [Norm] in gradient_norm.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/chunk_tree_sum.h"
#include "tensor/tensor.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

// The nodes of the trees that ranks send each other.
class ChunkNodes {
 public:
  struct Node {
    ParameterIndex parameter;
    kernels::ChunkSubtree subtree;
  };
  // `place`: the node's index among those of its rank.
  struct Leaf {
    Node node;
    int rank = 0;
    size_t place = 0;
  };

  // owned[r]: the slices that rank r has, both ends multiples of kNormChunk. Together the slices
  // hold each of their elements once.
  ChunkNodes(const ShardGroups& groups, const std::vector<std::vector<OwnedRange>>& owned);

  const std::vector<Node>& of_rank(size_t rank) const { return nodes_[rank]; }
  // The nodes of a rank's i-th slice, as indices in of_rank().
  Range of_slice(size_t rank, size_t i) const {
    return {first_of_slice_[rank][i], first_of_slice_[rank][i + 1]};
  }
  // The trees of a slice, in order of its nodes, by the index of the chunk in the slice.
  static std::vector<kernels::ChunkSubtree> trees_of(const ShardGroup& group,
                                                     const OwnedRange& slice);
  // All nodes in the order in which they are summed: by parameter, then by index in it.
  const std::vector<Leaf>& leaves() const { return leaves_; }
  // The leaves of each parameter, in order.
  std::vector<std::span<const Leaf>> by_parameter() const;
  // The largest number of nodes of any rank.
  int64_t longest() const;

  // The values of the nodes of all ranks, by rank, from this rank's. Collective; waits.
  std::vector<std::vector<double>> exchange(const std::vector<double>& own,
                                            comm::Communicator& communicator,
                                            StreamRef stream) const;
  // The sum of a parameter. `values`: by rank.
  static double sum(std::span<const Leaf> leaves, const std::vector<std::vector<double>>& values);

 private:
  std::vector<std::vector<Node>> nodes_;              // by rank
  std::vector<std::vector<int64_t>> first_of_slice_;  // by rank
  std::vector<Leaf> leaves_;
};

}  // namespace zinc::zero
