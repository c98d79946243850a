#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

// A gap in which a group is not gathered: from the place behind which it is given back to the place
// ahead of which it is gathered again.
struct Gap {
  int group = 0;
  size_t begin = 0, end = 0;
  int64_t distance = 0;  // elements of the parameters used in between
};

int64_t used_numel(const StepEvent& event, const RewriteInputs& inputs) {
  if (event.kind != EventKind::use) return 0;
  const Placement& placement = inputs.groups.at(event.parameter);
  return is_persistent(placement.segment) ? 0 : placement.parameter->numel();
}

std::vector<Gap> find_gaps(const std::vector<Place*>& timeline, const RewriteInputs& inputs) {
  std::vector<Gap> gaps;
  ByGroup<Gap> open(inputs.groups.size());  // since the last release; distance: used until then
  ByGroup<bool> is_open(inputs.groups.size(), false);
  int64_t used = 0;
  for (size_t i = 0; i < timeline.size(); ++i) {
    for (const Op& op : timeline[i]->before) {
      if (op.kind != OpKind::gather || !is_open[op.group]) continue;
      Gap gap = open[op.group];
      gap.end = i;
      gap.distance = used - gap.distance;
      gaps.push_back(gap);
      is_open[op.group] = false;
    }
    used += used_numel(timeline[i]->event, inputs);
    for (const Op& op : timeline[i]->after) {
      if (op.kind != OpKind::release) continue;
      open[op.group] = {.group = op.group, .begin = i, .distance = used};
      is_open[op.group] = true;
    }
  }
  return gaps;
}

void keep(const std::vector<Place*>& timeline, const std::set<int>& resident,
          const RewriteInputs& inputs) {
  std::vector<Gap> gaps = find_gaps(timeline, inputs);
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const Gap& a, const Gap& b) { return a.distance < b.distance; });
  std::vector<int64_t> live =
      gathered_curve({timeline.begin(), timeline.end()}, inputs.groups, resident);
  for (const Gap& gap : gaps) {
    if (gap.distance > inputs.policy.max_reuse_numel) break;
    const int64_t numel = inputs.groups[gap.group].gathered_numel();
    const auto begin = live.begin() + static_cast<int64_t>(gap.begin);
    const auto end = live.begin() + static_cast<int64_t>(gap.end);
    const bool fits = *std::max_element(begin, end) + numel <= inputs.policy.max_live_numel;
    if (gap.distance > 0 && !fits) continue;
    std::for_each(begin, end, [&](int64_t& at) { at += numel; });
    std::erase(timeline[gap.begin]->after, Op{OpKind::release, gap.group});
    std::erase(timeline[gap.end]->before, Op{OpKind::gather, gap.group});
  }
}

}  // namespace

Rewrite keep_resident() {
  return {.name = "keep_resident",
          .needs = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            for (const auto& timeline : program.timelines()) {
              keep(timeline, program.resident, inputs);
            }
          }};
}

}  // namespace zinc::zero
