// zero/layout/backward_turn.h: the one of a rank's backward passes over a micro-batch that makes
// the gradients of a group.
//
// There is one such pass, except in a pipeline. There a rank has one for each of its parts of the
// model, each followed by a pass of weights where gradients of weights are made apart
// (parallel/pipeline.h).
#pragma once

#include "zero/layout/shard_group.h"

namespace zinc::zero {

struct BackwardTurn {
  int part = 0;           // of the rank's parts of the model
  bool deferred = false;  // in the pass of weights behind the backward pass
  friend bool operator==(const BackwardTurn&, const BackwardTurn&) = default;
};

// True if the gradients of the group's weights may be made apart. Layers outside shard units are
// the embeddings and the head of a model. No rank waits for the input gradient of an embedding. A
// head makes the gradient of its weight together with that of its input, piece by piece, so that
// the logits never exist as a whole. An embedding that two stages use also gets the bits of a pass
// that makes all gradients at once: autograd/deferred_gradients.h.
inline bool may_defer(const ShardGroup& group) { return group.in_unit(); }

}  // namespace zinc::zero
