// zero/update/tied_gradients.h: gradients of parameters that several ranks of a pipeline have, as
// an embedding on the first rank and as the head on the last.
//
// Each rank has the sum over all micro-batches and shards of what its own stages bring. The first
// of them adds up those of the others, in order of rank, and gives the sum to all: so weights and
// states stay the same on each of them.
#pragma once

#include <vector>

#include "comm/world.h"
#include "parallel/pipeline_cut.h"
#include "zero/group/gradient_store.h"
#include "zero/group/optimizer_shards.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// After GradientStore::finish(), on the compute stream. `slices`: those that this rank updates.
// `pipe`: the ranks of the pipeline. Collective among those that have a parameter together.
void add_tied_gradients(const ShardGroups& groups, const parallel::PipelineCut& cut,
                        comm::World& pipe, const std::vector<UpdateSlice>& slices,
                        GradientStore& gradients);

}  // namespace zinc::zero
