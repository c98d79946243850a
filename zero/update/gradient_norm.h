// zero/update/gradient_norm.h: the global norm of a step's gradient, and the check that it is
// finite.
//
// Note [Norm]
// Squares are summed in f64, in three levels:
// - per chunk of kNormChunk elements
// - per parameter: its chunks, over the fixed binary tree of their indices
//   (kernels/chunk_tree_sum.h)
// - over all parameters, one after the other in order of declaration
//
// No chunk crosses the boundary of a parameter or a shard. A rank that holds a part of a parameter
// sends the sums of the largest complete subtrees of that part: O(log) numbers. Then every rank
// finishes the same tree. So the norm has the same bits for every partition. Ranks of a pipeline
// send each other the sums of whole parameters, and add all of them in order of declaration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/update/chunk_nodes.h"

namespace zinc::zero {

struct NormResult {
  double sum_of_squares = 0.0;
  // The first parameter, in order of declaration, with a NaN or an infinity, and the lowest rank
  // whose shard holds one. If ranks share layers: of the first of these ranks that has one. Null:
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
  // owned[r]: the slices that rank r measures, both ends multiples of kNormChunk. Together the
  // slices hold every trained element once. One entry: every rank has all elements, and nothing is
  // exchanged. `groups`, `communicator` and `context` must outlive this. `peers`: ranks that have
  // other parts of the model. The sums of slices are added in order of rank; parameters that are
  // not sliced count once.
  GradientNorm(const ShardGroups& groups, std::vector<std::vector<OwnedRange>> owned,
               comm::Communicator& communicator, Context& context, NormPeers peers = {});
  ~GradientNorm();
  GradientNorm(const GradientNorm&) = delete;
  GradientNorm& operator=(const GradientNorm&) = delete;

  // Measures the gradients of a step. gradients[i]: the values of this rank's i-th owned range, on
  // the device or in host memory. The CPU measures host memory, on a GPU beside the device. Waits
  // once for the compute stream and once for the host stream. Collective if ranges are spread over
  // ranks, or ranks share layers. On a meta device: sum of squares 1, finite.
  NormResult measure(const std::vector<ConstView>& gradients);

  // The same piece by piece, for values that do not stay on the device. Call expect_pieces() once
  // before; it takes device memory for the sums. Call take() once per owned range, with `gradient`
  // on the device, written by work on `stream`, the reduce stream. measure_taken() gives the
  // result, like measure().
  void expect_pieces();
  void take(const OwnedRange& slice, const ConstView& gradient, StreamRef stream);
  NormResult measure_taken();

  // For DeviceVerdict, which finishes the norm itself. Queues the sums of this rank's nodes to
  // `sums`, [num_own()] f64 on the device, on the compute stream. All gradients are on the device.
  void queue(const std::vector<ConstView>& gradients, const View& sums);
  const ChunkNodes& nodes() const { return nodes_; }
  // The number of this rank's nodes.
  int64_t num_own() const { return static_cast<int64_t>(nodes_.of_rank(me()).size()); }
  bool is_spread() const { return owned_.size() > 1; }
  // The result for a sum. `first_nonfinite`: index into nodes().leaves(); -1: all are finite.
  NormResult result(double sum_of_squares, int64_t first_nonfinite) const;

  // Names a gradient that is not finite: "transformer.h.3.mlp.c_fc.weight, in the shard of rank 2".
  std::string culprit(const NormResult& norm) const;

 private:
  struct Room {
    Block block;
    View view;
  };
  // Room for the output of a kernel that reads `like`, in the tier of `like`.
  Room take_room(const ConstView& like, int64_t numel, DType dtype);
  // Intermediate results of the kernels.
  struct Rooms {
    Room chunk_sums;
    Room nonfinite;
  };
  // For ranges of at most `most` elements.
  Rooms take_rooms(const ConstView& like, int64_t most);
  // The ranges of one tier. The host waits once for all of them.
  struct Queued {
    Tier tier;
    StreamRef stream;
    // Kept until the stream was waited for. There is room for the sums of any rank: all ranks then
    // take the same memory.
    Room sums;
    Rooms rooms;
  };
  // The sums of this rank's i-th range, among all of this rank's sums.
  Range sums_of(size_t i) const { return nodes_.of_slice(me(), i); }
  // Queues the sums of the subtrees of this rank's i-th range to their place in `sums`. `gradient`:
  // the values of the range.
  void queue_sums(size_t i, const ConstView& gradient, const Rooms& rooms, const View& sums,
                  StreamRef stream);
  std::vector<double> measure_own(const std::vector<ConstView>& gradients);
  // Sums of squares of whole parameters of the model, by their order.
  struct Sums {
    std::vector<double> squares;
    int64_t nonfinite = -1;  // the first that has a NaN or infinity
    int nonfinite_rank = 0;
  };
  // Adds the sums of other ranks of a pipeline. Collective.
  Sums over_stages(Sums here) const;
  // Adds the sums of other ranks' slices. Collective.
  NormResult over_slices(const Sums& sums) const;
  // `sums`: by rank, of that rank's nodes.
  NormResult combine(const std::vector<std::vector<double>>& sums) const;

  size_t me() const { return is_spread() ? static_cast<size_t>(communicator_.rank()) : 0; }
  const std::vector<OwnedRange>& own() const { return owned_[me()]; }
  // InternalError unless there is a gradient for each range of this rank.
  void require_all(const std::vector<ConstView>& gradients) const;

  const ShardGroups& groups_;
  std::vector<std::vector<OwnedRange>> owned_;
  ChunkNodes nodes_;
  comm::Communicator& communicator_;
  Context& context_;
  NormPeers peers_;
  std::unordered_map<const autograd::Parameter*, size_t> order_;  // in peers_.parameters
  Rooms piece_rooms_;                                             // empty before expect_pieces()
  Room piece_sums_;
  Event piece_queued_;  // behind the last take()
};

}  // namespace zinc::zero
