#include <algorithm>
#include <cstddef>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

void read(const std::vector<Place*>& timeline, const RewriteInputs& inputs) {
  // By group: the place behind which it is given back.
  ByGroup<size_t> given_back(inputs.groups.size(), 0);
  size_t last = 0;
  const auto read_for = [&](const Op& gather) {
    size_t place = std::max(last, given_back[gather.group]);
    // A release cannot report a disk failure, so the read is issued at the next event.
    while (timeline[place]->event.kind == EventKind::release) ++place;
    last = place;
    const Op op{OpKind::read, gather.group};
    // Ahead of its gather, which may be due at the same place.
    std::vector<Op>& ops = place == 0 ? timeline[0]->after : timeline[place]->before;
    ops.insert(std::find_if(ops.begin(), ops.end(),
                            [](const Op& other) { return other.kind == OpKind::gather; }),
               op);
  };
  for (size_t at = 0; at < timeline.size(); ++at) {
    for (const std::vector<Op>& ops : {timeline[at]->before, timeline[at]->after}) {
      for (const Op& op : ops) {
        if (op.kind == OpKind::gather) read_for(op);
        if (op.kind == OpKind::release) given_back[op.group] = at;
      }
    }
  }
}

}  // namespace

Rewrite read_parameters() {
  return {.name = "read_parameters",
          .needs = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            for (const auto& timeline : program.timelines()) read(timeline, inputs);
            // Unless the update runs beside the next forward pass, the new values are there when
            // the step ends: the first reads of the next step may start then.
            if (inputs.policy.update == UpdateTime::beside_forward || !inputs.policy.trains())
              return;
            const auto first =
                std::ranges::find_if(program.bodies, [](const auto& of) { return of.first.first; });
            for (const Op& op : first->second.forward.front().after) {
              if (op.kind == OpKind::read) program.step.back().after.push_back(op);
            }
          }};
}

}  // namespace zinc::zero
