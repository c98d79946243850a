// zero/program/pass.h: a rewrite of the step program.
//
// A pass changes the ops of a program; the events of the record stay. Passes run one after the
// other, the engine's own first (zero/passes/passes.h), then a client's (EngineOptions::passes).
// Each of a client's is followed by the checker, so that a pass that breaks the program is named.
//
//   zinc::zero::Pass late{
//       .name = "gather at the last moment",
//       .rewrite = [](zinc::zero::Program& program, const zinc::zero::PassInputs&) { ... }};
//
// A pass sees only what all ranks agree on, so all ranks make the same program.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "zero/layout/shard_group.h"
#include "zero/program/policy.h"
#include "zero/program/program.h"

namespace zinc::zero {

struct PassInputs {
  const std::vector<ShardGroup>& groups;
  const StepPolicy& policy;
  // See Record. With these orders all ranks issue the collectives that are not tied to a use.
  const std::vector<int>& reduce_order;
  const std::vector<int>& use_order;
};

struct Pass {
  std::string name;
  // What an earlier pass has to have put into the program, and what this one puts there: "gathers".
  std::vector<std::string> needs{};
  std::vector<std::string> gives{};
  std::function<void(Program&, const PassInputs&)> rewrite;
};

// An op that a pass put somewhere or took away; one that it moved is both.
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

// Runs the passes in their order. `given`: what earlier passes gave, and then these too. Throws
// InvalidArgument that names a pass which needs what no pass before it gives.
std::vector<PassEffect> run_passes(Program& program, const std::vector<Pass>& passes,
                                   const PassInputs& inputs, std::set<std::string>& given);

}  // namespace zinc::zero
