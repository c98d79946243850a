#include "zero/program/pass.h"

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

std::vector<PassEffect> run_passes(Program& program, const std::vector<Pass>& passes,
                                   const PassInputs& inputs, std::set<std::string>& given) {
  std::vector<PassEffect> effects;
  std::multiset<PlacedOp> ops = ops_of(program);
  int64_t gathered = most_gathered(program, inputs.groups);
  for (const Pass& pass : passes) {
    for (const std::string& need : pass.needs) {
      require(given.contains(need), "pass '", pass.name, "' needs '", need,
              "', which no pass before it gives");
    }
    pass.rewrite(program, inputs);
    given.insert(pass.gives.begin(), pass.gives.end());
    std::multiset<PlacedOp> now = ops_of(program);
    const int64_t gathered_now = most_gathered(program, inputs.groups);
    effects.push_back({.name = pass.name,
                       .changes = changes_between(ops, now),
                       .gathered_before = gathered,
                       .gathered_after = gathered_now});
    ops = std::move(now);
    gathered = gathered_now;
  }
  return effects;
}

}  // namespace zinc::zero
