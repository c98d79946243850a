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
#include "zero/strategy.h"

namespace zinc::zero {

class TiedGradients {
 public:
  // All outlive this. `pipe`: the ranks of the pipeline.
  TiedGradients(const ShardGroups& groups, const parallel::PipelineCut& cut, comm::World& pipe,
                const Strategy& strategy);
  // After GradientStore::finish(), on the compute stream. Collective among those that have them.
  void add_up() const;

 private:
  void add_up(const std::vector<int>& holders, const View& sums) const;

  const ShardGroups& groups_;
  const parallel::PipelineCut& cut_;
  comm::World& pipe_;
  const Strategy& strategy_;
};

}  // namespace zinc::zero
