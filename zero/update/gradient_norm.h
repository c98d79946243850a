// zero/update/gradient_norm.h: the global norm of a step's gradient, and whether it is finite.
//
// Note [Norm]
// Squares are summed in f64 per chunk of kNormChunk elements, chunks of one parameter over the
// fixed binary tree of their indices (kernels/chunk_tree_sum.h), parameters one after the other in
// order of declaration. Chunks never cross parameters or shard boundaries, so a rank that holds
// part of a parameter sends the sums of its maximal subtrees, O(log) numbers, and every rank
// finishes the same tree: the norm has the same bits for every partition. Ranks of a pipeline send
// each other the sums of whole parameters, and add all of them in order of declaration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
#include "kernels/chunk_tree_sum.h"
#include "zero/layout/parameter_table.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// A range of trained elements of one group's arena; both ends are multiples of kNormChunk.
struct OwnedRange {
  int group = 0;
  Range range;
};

struct NormResult {
  double sum_of_squares = 0.0;
  // The first parameter (in order of declaration) with a NaN or infinity, and the lowest rank that
  // holds such an element of it. Where ranks share layers: of the first of them that has one. Null:
  // all is finite.
  const autograd::Parameter* nonfinite = nullptr;
  int nonfinite_rank = 0;
  int nonfinite_slice = 0;
};

// Ranks that have other parts of the model, beside those among which its groups are sharded.
struct NormPeers {
  // Ranks that share layers: slices are summed in order of rank, whole parameters count once. Null:
  // layers are whole.
  comm::World* tensor = nullptr;
  // Ranks of a pipeline; null: there is none. Then also: the parameters of the whole model in order
  // of declaration, and the rank whose sum of a parameter counts.
  comm::World* pipe = nullptr;
  std::vector<const autograd::Parameter*> parameters{};
  std::function<int(const autograd::Parameter&)> speaker{};
};

class GradientNorm {
 public:
  struct Node {
    ParameterIndex parameter;
    kernels::ChunkSubtree subtree;
  };
  // A node of the tree of a parameter, the place-th of its rank's.
  struct Leaf {
    Node node;
    int rank = 0;
    size_t place = 0;
  };

  // owned[r]: what rank r measures; together every trained element once. One entry: every rank
  // holds everything, and nothing is exchanged. `groups` must outlive this.
  GradientNorm(const std::vector<ShardGroup>& groups, std::vector<std::vector<OwnedRange>> owned,
               comm::Communicator& communicator, Context& context, NormPeers peers = {});
  ~GradientNorm();
  GradientNorm(const GradientNorm&) = delete;
  GradientNorm& operator=(const GradientNorm&) = delete;

  // gradients[i]: the values of the rank's i-th owned range, on the device or in host memory, where
  // the CPU measures them, on a GPU beside the device. Waits for the compute stream once, and once
  // for host memory; collective where ranges are spread over ranks. On a meta device: 1, finite.
  NormResult measure(const std::vector<ConstView>& gradients);

  // The same piece by piece, for values that do not stay: take() for each of the rank's owned
  // ranges, on the device as work issued to `stream`, the reduce stream, leaves it; then
  // measure_taken(). expect_pieces() comes once before and takes the room for them on the device.
  void expect_pieces();
  void take(int group, Range range, const ConstView& gradient, StreamRef stream);
  NormResult measure_taken();

  // For a norm that is finished elsewhere. Queues the sums of this rank's nodes to `sums`, [as
  // many] f64, on the compute stream; every gradient is on the device.
  void queue(const std::vector<ConstView>& gradients, const View& sums);
  // The nodes of all ranks in the order of the sum: by parameter, then by place in it.
  const std::vector<Leaf>& leaves() const { return leaves_; }
  // Nodes of the rank that has most, and of this one.
  int64_t longest() const;
  int64_t num_own() const { return static_cast<int64_t>(nodes_[me()].size()); }
  bool is_spread() const { return owned_.size() > 1; }
  // With the leaf that is not finite, or -1.
  NormResult result(double sum_of_squares, int64_t first_nonfinite) const;

  // Of a gradient that is not finite: "transformer.h.3.mlp.c_fc.weight, in the shard of rank 2".
  std::string culprit(const NormResult& norm) const;

 private:
  struct Room {
    Block block;
    View view;
  };
  // For what a kernel leaves that reads `like`: where that lies.
  Room take_room(const ConstView& like, int64_t numel, DType dtype);
  // What a kernel leaves on its way to the sums.
  struct Rooms {
    Room chunk_sums;
    Room nonfinite;
  };
  // Owned ranges of one tier: their sums lie side by side, so that the host waits for a tier once.
  struct Part {
    size_t gradient = 0;           // of measure()
    int64_t first = 0, count = 0;  // of the rank's sums
  };
  struct Queued {
    std::vector<Part> parts;
    StreamRef stream;
    // Until the stream was waited for. Room for the sums of any rank, so that all ranks take as
    // much.
    Room sums;
    Rooms rooms;
  };
  Queued take_tier(Tier tier, std::vector<Part> parts, const std::vector<ConstView>& gradients);
  // Queues the sums of every subtree in `owned`, whose values `gradient` holds, side by side to
  // `out`.
  void queue_sums(const OwnedRange& owned, const ConstView& gradient, const Rooms& rooms,
                  const View& out, StreamRef stream);
  std::vector<double> measure_own(const std::vector<ConstView>& gradients);
  std::vector<std::vector<double>> exchange(const std::vector<double>& own);
  // Sums of squares of whole parameters of the model, by their order.
  struct Sums {
    std::vector<double> squares;
    int64_t nonfinite = -1;  // the first that has a NaN or infinity
    int nonfinite_rank = 0;
  };
  // With those of other ranks of a pipeline. Collective.
  Sums over_stages(Sums here) const;
  // With the slices of other ranks. Collective.
  NormResult over_slices(const Sums& sums) const;
  const autograd::Parameter& parameter_of(const Node& node) const;
  // `sums`: by rank.
  NormResult combine(const std::vector<std::vector<double>>& sums) const;

  size_t me() const { return is_spread() ? static_cast<size_t>(communicator_.rank()) : 0; }
  const std::vector<OwnedRange>& own() const { return owned_[me()]; }
  int64_t num_nodes(const OwnedRange& owned) const;

  const std::vector<ShardGroup>& groups_;
  std::vector<std::vector<OwnedRange>> owned_;
  std::vector<std::vector<Node>> nodes_;  // by rank, in the order of measure_own's result
  std::vector<Leaf> leaves_;
  comm::Communicator& communicator_;
  Context& context_;
  NormPeers peers_;
  std::unordered_map<const autograd::Parameter*, size_t> order_;  // in peers_.parameters
  Rooms piece_rooms_;                                             // empty before expect_pieces()
  Room piece_sums_;
  Event piece_queued_;               // the last one
  std::vector<int64_t> first_sums_;  // by own range: its place there
};

}  // namespace zinc::zero
