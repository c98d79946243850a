// parallel/tensor_ranks.h: ranks that share the layers of a model, over a communicator.
#pragma once

#include <memory>

#include "comm/world.h"
#include "nn/module.h"
#include "nn/tensor_ranks.h"

namespace zinc::parallel {

// `group` outlives the result. Sums take room from the current context (Label::communication) and
// are queued on its compute stream. On another device than the group's, where a step is recorded,
// they take the room and are not made.
std::unique_ptr<nn::TensorRanks> make_tensor_ranks(comm::World& group);

// Has `group` share the model's layers; null: each rank has all of them. Throws ConfigError where
// the model has no layer that says how it is sliced, and what its layers throw.
void share_layers(nn::Module& model, nn::TensorRanks* ranks);

// The whole of a parameter, on every rank, of each rank's values of its slice. Collective.
Tensor whole_of(comm::World& group, const TensorSlice& slice, const Tensor& here);
// The slice's part of the whole; a copy.
Tensor part_of(const TensorSlice& slice, const Tensor& whole);

}  // namespace zinc::parallel
