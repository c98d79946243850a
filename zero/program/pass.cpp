#include "zero/program/pass.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"

namespace zinc::zero {
namespace {

// Every op of a program with the place where it is.
using PlacedOp = std::tuple<int, size_t, bool, Op>;

std::multiset<PlacedOp> ops_of(const Program& program) {
  std::multiset<PlacedOp> ops;
  int phase_number = 0;
  const auto add = [&](const Phase& phase) {
    for (size_t i = 0; i < phase.size(); ++i) {
      for (const Op& op : phase[i].before) ops.emplace(phase_number, i, false, op);
      for (const Op& op : phase[i].after) ops.emplace(phase_number, i, true, op);
    }
    ++phase_number;
  };
  add(program.evaluation);
  for (const auto& [kind, body] : program.bodies) {
    add(body.forward);
    add(body.backward);
  }
  add(program.step);
  return ops;
}

int64_t most_gathered(const Program& program, const std::vector<ShardGroup>& groups) {
  int64_t most = 0;
  for (const auto& [kind, body] : program.bodies) {
    for (const int64_t numel : gathered_curve(body.timeline(), groups, program.resident))
      most = std::max(most, numel);
  }
  return most;
}

int64_t missing_in(const std::multiset<PlacedOp>& from, const std::multiset<PlacedOp>& in) {
  std::vector<PlacedOp> missing;
  std::set_difference(from.begin(), from.end(), in.begin(), in.end(), std::back_inserter(missing));
  return static_cast<int64_t>(missing.size());
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
                       .added = missing_in(now, ops),
                       .removed = missing_in(ops, now),
                       .gathered_before = gathered,
                       .gathered_after = gathered_now});
    ops = std::move(now);
    gathered = gathered_now;
  }
  return effects;
}

}  // namespace zinc::zero
