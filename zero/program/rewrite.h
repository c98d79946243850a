// zero/program/rewrite.h: a rewrite of the step program.
//
// A rewrite changes the ops of a program. The events stay as recorded. The engine's own rewrites
// (zero/rewrites/rewrites.h) run first, one after the other, then a client's
// (EngineOptions::rewrites). The checker runs behind each rewrite of a client, so an error names
// the rewrite that broke the program.
//
//   zinc::zero::Rewrite late{
//       .name = "gather at the last moment",
//       .apply = [](zinc::zero::Program& program, const zinc::zero::RewriteInputs&) { ... }};
//
// The inputs of a rewrite are equal on all ranks, so all ranks make the same program.
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

struct RewriteInputs {
  const ShardGroups& groups;
  const StepPolicy& policy;
  // Record::reduce_order and use_order: the orders in which all ranks reduce, and publish.
  const std::vector<int>& reduce_order;
  const std::vector<int>& use_order;
  // By group; empty: there is one backward pass.
  ByGroup<BackwardTurn> turns{};

  BackwardTurn turn_of(int group) const { return turns.empty() ? BackwardTurn{} : turns[group]; }
};

// The ops that a program has once a rewrite put them there.
enum class ProgramOps { gathers, reduces, updates, pipeline };

const char* to_string(ProgramOps ops);

struct Rewrite {
  std::string name;
  std::set<ProgramOps> needs{};  // ops that earlier rewrites must have added
  std::set<ProgramOps> gives{};
  std::function<void(Program&, const RewriteInputs&)> apply;
};

// An op that a rewrite added or removed. A moved op is removed once and added once.
struct OpChange {
  size_t phase = 0;     // index in Program::phases()
  size_t place = 0;     // index in the phase
  bool behind = false;  // the event of the place; otherwise ahead of it
  Op op;
  bool added = false;  // otherwise taken away
};

// A rewrite's changes to the program, for people.
struct RewriteEffect {
  std::string name;
  std::vector<OpChange> changes;
  // Most elements of gathered arenas before the rewrite, without resident ones.
  int64_t gathered_before = 0;
  int64_t gathered_after = 0;
};

// Runs the rewrites in their order. `given`: the kinds of ops that earlier rewrites gave; the kinds
// that these rewrites give are added. Throws InvalidArgument if a rewrite needs a kind that no
// rewrite before it gives.
std::vector<RewriteEffect> run_rewrites(Program& program, const std::vector<Rewrite>& rewrites,
                                        const RewriteInputs& inputs, std::set<ProgramOps>& given);

}  // namespace zinc::zero
