// zero/rewrites/step_program.h: from a model and a policy to the program of its steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.h"
#include "zero/program/record.h"
#include "zero/rewrites/rewrites.h"

namespace zinc::zero {

struct StepProgram {
  const ShardGroups* groups = nullptr;  // outlive the program
  Record record;
  StepPolicy policy;
  Program program;
  std::vector<RewriteEffect> effects;  // of the rewrites, in their order
  uint64_t hash = 0;                   // of the layout and all ops: equal on all ranks
};

// A client's changes to the list of rewrites.
struct ClientRewrites {
  std::vector<Rewrite> rewrites;     // run after the engine's own
  std::vector<std::string> without;  // names of rewrites of the engine that do not run
};

// Records the model, without its backward pass if the policy never updates, runs the rewrites of
// the policy, then those of the client, and checks the result. `together`: micro-batches that pass
// side by side. `cut`: null if this rank has the whole model. Throws InvalidArgument with the name
// of the rewrite that breaks the program. If a name of `without` is no rewrite, the message lists
// those there are.
StepProgram make_step_program(nn::Model& model, const ShardGroups& groups, const StepPolicy& policy,
                              const ExampleBatch& example, int64_t together,
                              const ClientRewrites& client = {},
                              parallel::PipelineCut* cut = nullptr);

}  // namespace zinc::zero
