// parallel/tensor_ranks.h: nn::TensorRanks over a communicator.
#pragma once

#include <memory>

#include "autograd/saved_tensor_store.h"
#include "comm/world.h"
#include "nn/model.h"
#include "nn/tensor_ranks.h"

namespace zinc::parallel {

// The least pieces in which sums and tokens travel beside products, on stream_beside_compute().
struct LeastPiece {
  // Bytes of the sum of a product's result; it is cut into at most kMostPieces. 0: not cut.
  int64_t sum_bytes = 0;
  // Bytes of all tokens of a sequence, where several sequences are shared. 0: all sequences travel
  // at once.
  int64_t sequence_bytes = 0;
  // Tokens of one sequence that is shared; it is cut into at most kMostPieces. 0: not cut.
  int64_t tokens = 0;
};
inline constexpr int64_t kMostPieces = 4;
// On a GPU 4 MiB, 16 MiB and 8192 tokens; on a CPU nothing is cut.
LeastPiece least_piece_on(const comm::World* group);

// `group` must outlive the result; null: a single rank. Sums allocate from the current context
// (Label::communication) and are queued on its compute stream. On another device than the group's,
// as when a step is recorded, they only allocate.
std::unique_ptr<nn::TensorRanks> make_tensor_ranks(comm::World* group, const LeastPiece& least);
inline std::unique_ptr<nn::TensorRanks> make_tensor_ranks(comm::World* group) {
  return make_tensor_ranks(group, least_piece_on(group));
}

// Makes `ranks` share the model's layers. Null: each rank has whole layers. Throws ConfigError if
// no layer of the model says how it is sliced, and whatever the layers throw.
void share_layers(nn::Module& model, nn::TensorRanks* ranks);

// Makes the tensor ranks share tokens between sliced layers, or ends that. Throws ConfigError if
// the model cannot.
void share_tokens(nn::Model& model, bool on);

// A store for saved tensors that are the same on every rank of `group`. A rank keeps only its part
// of a tensor, in `inner` (null: as it is), and restore() gathers the parts. Both must outlive the
// result. restore() is collective and queued on the compute stream; all ranks call it in the same
// order.
std::unique_ptr<autograd::SavedTensorStore> share_saved(comm::World& group,
                                                        autograd::SavedTensorStore* inner);

// Builds a whole parameter on every rank, from each rank's values of its slice. Collective.
Tensor whole_of(comm::World& group, const TensorSlice& slice, const Tensor& here);
// A copy of the slice's part of `whole`.
Tensor part_of(const TensorSlice& slice, const Tensor& whole);

}  // namespace zinc::parallel
