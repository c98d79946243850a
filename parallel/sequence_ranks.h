// parallel/sequence_ranks.h: nn::SequenceRanks over a communicator.
#pragma once

#include <memory>

#include "comm/world.h"
#include "nn/model.h"
#include "nn/sequence_ranks.h"

namespace zinc::parallel {

// `group` must outlive the result. They exchange `what` around attention. Exchanges allocate from
// the current context (Label::communication) and are queued on its compute stream. On another
// device than the group's, as when a step is recorded, they only allocate.
std::unique_ptr<nn::SequenceRanks> make_sequence_ranks(comm::World& group,
                                                       nn::SequenceExchange what);

// Makes `ranks` share the model's sequences. Null: each rank has whole sequences. Throws
// ConfigError if the model cannot share them.
void share_sequence(nn::Model& model, nn::SequenceRanks* ranks);

}  // namespace zinc::parallel
