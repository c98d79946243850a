// zero/passes/step_program.h: from a model and a policy to the program of its steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.h"
#include "zero/passes/passes.h"
#include "zero/program/record.h"

namespace zinc::zero {

struct StepProgram {
  const std::vector<ShardGroup>* groups = nullptr;  // that it was made for, and that outlive it
  Record record;
  StepPolicy policy;
  Program program;
  std::vector<PassEffect> effects;  // of the passes, in their order
  uint64_t hash = 0;                // of the layout and of all ops: equal on all ranks
};

// What a client adds to the passes of the policy.
struct ClientPasses {
  std::vector<Pass> passes;          // after the engine's own
  std::vector<std::string> without;  // the engine's own that are left out, by name
};

// Records the model, runs the passes of the policy and then those of a client, and checks the
// result. Throws InvalidArgument that names the pass which breaks the program, or all names where
// one that is left out is none. `together`: micro-batches that pass side by side. `cut`: null: this
// rank has all of the model.
StepProgram make_step_program(nn::Model& model, const std::vector<ShardGroup>& groups,
                              const StepPolicy& policy, const ExampleBatch& example,
                              int64_t together, const ClientPasses& client = {},
                              PipelineCut* cut = nullptr);

}  // namespace zinc::zero
