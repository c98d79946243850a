#include "zero/program/rewrite.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"

namespace zinc::zero {
namespace {

// Every op of a program with the place where it is.
using PlacedOp = std::tuple<size_t, size_t, bool, Op>;

std::multiset<PlacedOp> ops_of(const Program& program) {
  std::multiset<PlacedOp> ops;
  const std::vector<const Phase*> phases = program.phases();
  for (size_t number = 0; number < phases.size(); ++number) {
    const Phase& phase = *phases[number];
    for (size_t i = 0; i < phase.size(); ++i) {
      for (const Op& op : phase[i].before) ops.emplace(number, i, false, op);
      for (const Op& op : phase[i].after) ops.emplace(number, i, true, op);
    }
  }
  return ops;
}

int64_t most_gathered(const Program& program, const ShardGroups& groups) {
  int64_t most = 0;
  for (const auto& [kind, body] : program.bodies) {
    for (const int64_t numel : gathered_curve(body.timeline(), groups, program.resident))
      most = std::max(most, numel);
  }
  return most;
}

std::vector<OpChange> changes_between(const std::multiset<PlacedOp>& before,
                                      const std::multiset<PlacedOp>& after) {
  std::vector<OpChange> changes;
  const auto add = [&](const auto& from, const auto& in, bool added) {
    std::vector<PlacedOp> missing;
    std::ranges::set_difference(from, in, std::back_inserter(missing));
    for (const auto& [phase, place, behind, op] : missing) {
      changes.push_back(
          {.phase = phase, .place = place, .behind = behind, .op = op, .added = added});
    }
  };
  add(after, before, true);
  add(before, after, false);
  return changes;
}

}  // namespace

const char* to_string(ProgramOps ops) {
  switch (ops) {
    case ProgramOps::gathers:
      return "gathers";
    case ProgramOps::reduces:
      return "reduces";
    case ProgramOps::updates:
      return "updates";
    case ProgramOps::pipeline:
      return "pipeline";
  }
  return "?";
}

std::vector<RewriteEffect> run_rewrites(Program& program, const std::vector<Rewrite>& rewrites,
                                        const RewriteInputs& inputs, std::set<ProgramOps>& given) {
  std::vector<RewriteEffect> effects;
  std::multiset<PlacedOp> ops = ops_of(program);
  int64_t gathered = most_gathered(program, inputs.groups);
  for (const Rewrite& rewrite : rewrites) {
    for (const ProgramOps need : rewrite.needs) {
      require(given.contains(need), "rewrite '", rewrite.name, "' needs '", to_string(need),
              "', which no rewrite before it gives");
    }
    rewrite.apply(program, inputs);
    given.insert(rewrite.gives.begin(), rewrite.gives.end());
    std::multiset<PlacedOp> now = ops_of(program);
    const int64_t gathered_now = most_gathered(program, inputs.groups);
    effects.push_back({.name = rewrite.name,
                       .changes = changes_between(ops, now),
                       .gathered_before = gathered,
                       .gathered_after = gathered_now});
    ops = std::move(now);
    gathered = gathered_now;
  }
  return effects;
}

}  // namespace zinc::zero
