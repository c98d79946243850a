#include <algorithm>
#include <cstddef>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

// Finds for each group the last place that needs its weights and gradients unchanged.
ByGroup<size_t> last_needs(const Phase& backward, size_t num_groups) {
  ByGroup<size_t> last(num_groups, 0);
  for (size_t at = 0; at < backward.size(); ++at) {
    const Place& place = backward[at];
    if (place.event.kind == EventKind::release) {
      last[place.event.parameter.group] = at;
    }
    for (const auto* ops : {&place.before, &place.after}) {
      for (const Op& op : *ops) {
        if (op.kind == OpKind::reduce) last[op.group] = at;
      }
    }
  }
  return last;
}

// `early`: the losses are known before the backward pass begins. Otherwise they are by the time of
// the first update.
void update_in(Phase& backward, const std::vector<Op>& updates, size_t num_groups, bool early) {
  const ByGroup<size_t> last = last_needs(backward, num_groups);
  size_t first = backward.size() - 1;
  for (const Op& op : updates) {
    size_t at = last[op.group];
    while (backward[at].event.kind == EventKind::release) ++at;
    first = std::min(first, at);
    backward[at].after.push_back(op);
  }
  std::vector<Op>& before = backward[early ? 0 : first].after;
  const auto place = std::ranges::find(before, OpKind::update, &Op::kind);
  before.insert(early ? before.end() : place, {OpKind::decide});
}

}  // namespace

Rewrite update_early() {
  return {.name = "update_early",
          .needs = {ProgramOps::reduces, ProgramOps::updates},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            std::vector<Op>& in_step = program.step.front().after;
            std::vector<Op> updates;
            std::ranges::copy_if(in_step, std::back_inserter(updates),
                                 [](const Op& op) { return op.kind == OpKind::update; });
            std::erase_if(in_step, [](const Op& op) {
              return op.kind == OpKind::decide || op.kind == OpKind::update;
            });
            for (auto& [kind, body] : program.bodies) {
              if (!kind.last) continue;
              update_in(body.backward, updates, inputs.groups.size(),
                        !inputs.policy.losses_in_backward);
            }
          }};
}

}  // namespace zinc::zero
