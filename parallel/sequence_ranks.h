// parallel/sequence_ranks.h: ranks that share the tokens of sequences, over a communicator.
#pragma once

#include <memory>

#include "comm/world.h"
#include "nn/model.h"
#include "nn/sequence_ranks.h"

namespace zinc::parallel {

// `group` outlives the result. Exchanges take room from the current context (Label::communication)
// and are queued on its compute stream. On another device than the group's, where a step is
// recorded, they take the room and are not made.
std::unique_ptr<nn::SequenceRanks> make_sequence_ranks(comm::World& group);

// Has `ranks` share the model's sequences; null: each rank has whole ones. Throws ConfigError where
// the model cannot.
void share_sequence(nn::Model& model, nn::SequenceRanks* ranks);

}  // namespace zinc::parallel
