// zero/program/pass.h: a rewrite of the step program.
//
// A pass changes the ops of a program. The events stay as recorded. The engine's own passes
// (zero/passes/passes.h) run first, one after the other, then a client's (EngineOptions::passes).
// The checker runs behind each pass of a client, so an error names the pass that broke the program.
//
//   zinc::zero::Pass late{
//       .name = "gather at the last moment",
//       .rewrite = [](zinc::zero::Program& program, const zinc::zero::PassInputs&) { ... }};
//
// The inputs of a pass are equal on all ranks, so all ranks make the same program.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "zero/layout/backward_turn.h"
#include "zero/layout/shard_group.h"
#include "zero/program/policy.h"
#include "zero/program/program.h"

namespace zinc::zero {

struct PassInputs {
  const ShardGroups& groups;
  const StepPolicy& policy;
  // Record::reduce_order and use_order: the orders in which all ranks reduce, and publish.
  const std::vector<int>& reduce_order;
  const std::vector<int>& use_order;
  // By group; empty: there is one backward pass.
  ByGroup<BackwardTurn> turns{};

  BackwardTurn turn_of(int group) const { return turns.empty() ? BackwardTurn{} : turns[group]; }
};

struct Pass {
  std::string name;
  // What earlier passes must have given, and what this pass gives: "gathers", "reduces", "updates".
  std::vector<std::string> needs{};
  std::vector<std::string> gives{};
  std::function<void(Program&, const PassInputs&)> rewrite;
};

// An op that a pass added or removed. A moved op is removed once and added once.
struct OpChange {
  size_t phase = 0;     // of Program::phases()
  size_t place = 0;     // of the phase
  bool behind = false;  // the event of the place; otherwise ahead of it
  Op op;
  bool added = false;  // otherwise taken away
};

// What a pass did, for people.
struct PassEffect {
  std::string name;
  std::vector<OpChange> changes;
  int64_t gathered_before = 0;  // elements of gathered arenas at most, but for resident ones
  int64_t gathered_after = 0;
};

// Runs the passes in their order. `given`: what earlier passes gave; what these give is added.
// Throws InvalidArgument if a pass needs what no pass before it gives.
std::vector<PassEffect> run_passes(Program& program, const std::vector<Pass>& passes,
                                   const PassInputs& inputs, std::set<std::string>& given);

}  // namespace zinc::zero
