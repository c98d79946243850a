#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

// Counts the gathers of each group in the passes of one micro-batch. Two gathers with no other
// group's use between them count as one: keep_resident() removes the second.
ByGroup<int64_t> count_gathers(const std::vector<Place*>& timeline, size_t num_groups) {
  ByGroup<int64_t> gathers(num_groups, 0);
  int last = -1;
  for (const Place* place : timeline) {
    for (const Op& op : place->before) {
      if (op.kind != OpKind::gather || op.group == last) continue;
      ++gathers[op.group];
      last = op.group;
    }
  }
  return gathers;
}

struct Worth {
  int group = 0;
  int64_t bytes = 0;
  double per_byte = 0.0;  // time of the gathers that a step is spared
};

void choose(Program& program, const RewriteInputs& inputs) {
  const MicroBatchKind only{.first = true, .last = true};
  const ByGroup<int64_t> gathers =
      count_gathers(program.bodies.at(only).timeline(), inputs.groups.size());
  std::vector<Worth> worth;
  for (const ShardGroup& group : inputs.groups) {
    const int64_t spared = gathers[group] - (inputs.policy.repeats ? 0 : 1);
    const int64_t bytes = group.gathered_bytes();
    if (spared <= 0 || bytes == 0) continue;
    const auto time = static_cast<double>(spared * (kGatherOverhead + bytes));
    worth.push_back({group.index(), bytes, time / static_cast<double>(bytes)});
  }
  std::ranges::stable_sort(worth, std::greater(), &Worth::per_byte);
  int64_t left = inputs.policy.resident_bytes;
  for (const Worth& one : worth) {
    if (one.bytes > left) continue;
    left -= one.bytes;
    program.resident.insert(one.group);
  }
}

// Leaves the first gather of a step and the last release.
void keep(const MicroBatchKind& kind, const std::vector<Place*>& timeline,
          const std::set<int>& resident) {
  std::set<int> gathered;
  if (!kind.first) gathered = resident;
  for (Place* place : timeline) {
    std::erase_if(place->before, [&](const Op& op) {
      return op.kind == OpKind::gather && resident.contains(op.group) &&
             !gathered.insert(op.group).second;
    });
  }
  std::set<int> released;
  if (!kind.last) released = resident;
  for (size_t at = timeline.size(); at-- > 0;) {
    std::erase_if(timeline[at]->after, [&](const Op& op) {
      return op.kind == OpKind::release && resident.contains(op.group) &&
             !released.insert(op.group).second;
    });
  }
}

}  // namespace

Rewrite keep_through_step() {
  return {.name = "keep_through_step",
          .needs = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            choose(program, inputs);
            for (auto& [kind, body] : program.bodies) {
              keep(kind, body.timeline(), program.resident);
            }
          }};
}

}  // namespace zinc::zero
