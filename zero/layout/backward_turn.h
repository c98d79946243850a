// zero/layout/backward_turn.h: which of a rank's backward passes over a micro-batch makes the
// gradients of a group.
//
// There is one such pass, but for ranks of a pipeline: they have one for each part of the model,
// and another one behind it where gradients of weights are made apart (parallel/pipeline.h).
#pragma once

#include "zero/layout/shard_group.h"

namespace zinc::zero {

struct BackwardTurn {
  int part = 0;           // of the rank's
  bool deferred = false;  // in the pass of weights behind the backward pass
  friend bool operator==(const BackwardTurn&, const BackwardTurn&) = default;
};

// True: where gradients of weights are made apart, those of the group are. Layers outside shard
// units are the first and the last ones of a model, embeddings and heads: nobody waits for the
// former, and the latter make the gradient of the weight along with that of the input, piece by
// piece, so as never to have it whole. An embedding that two stages use also gets the bits of a
// pass that makes all gradients at once: autograd/deferred_gradients.h.
inline bool may_defer(const ShardGroup& group) { return group.in_unit(); }

}  // namespace zinc::zero
