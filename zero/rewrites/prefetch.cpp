#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

bool may_issue_behind(const StepEvent& event) {
  return event.kind == EventKind::use || event.kind == EventKind::begin;
}

// One pass through the timeline of a micro-batch or an evaluation.
class Mover {
 public:
  Mover(const std::vector<Place*>& timeline, const std::set<int>& resident,
        const RewriteInputs& inputs)
      : timeline_(timeline),
        inputs_(inputs),
        resident_(resident),
        live_(gathered_curve({timeline.begin(), timeline.end()}, inputs.groups, resident)),
        free_from_(inputs.groups.size(), 0) {}

  void run() {
    for (size_t use = 0; use < timeline_.size(); ++use) {
      for (const Op& op : timeline_[use]->before) {
        if (op.kind == OpKind::publish) free_from_[op.group] = use;
      }
      std::vector<Op> gathers;
      for (const Op& op : timeline_[use]->before) {
        if (op.kind == OpKind::gather) gathers.push_back(op);
      }
      for (const Op& op : gathers) move_up(op, use);
      for (const Op& op : timeline_[use]->after) {
        if (op.kind == OpKind::release) free_from_[op.group] = use;
        if (op.kind == OpKind::publish) free_from_[op.group] = use;
      }
    }
  }

 private:
  struct OnTheWay {
    size_t issue = 0, use = 0;
    int64_t numel = 0;
  };

  // Moves up the gather that is due ahead of the place `use`.
  void move_up(const Op& op, size_t use) {
    if (inputs_.policy.prefetch_numel == 0) return;
    const int64_t numel = inputs_.groups[op.group].gathered_numel();
    size_t first = std::max(last_issue_, free_from_[op.group]);
    // The last place at which too much would be gathered.
    const bool counts = !resident_.contains(op.group);
    for (size_t at = use; counts && at-- > first;) {
      if (live_[at] + numel <= inputs_.policy.max_live_numel) continue;
      first = at + 1;
      break;
    }
    for (size_t at = first; at < use; ++at) {
      if (!may_issue_behind(timeline_[at]->event)) continue;
      // A group that is larger than the bound goes alone.
      const int64_t ahead = on_the_way(at);
      if (ahead > 0 && ahead + numel > inputs_.policy.prefetch_numel) continue;
      std::erase(timeline_[use]->before, op);
      timeline_[at]->after.push_back(op);
      for (size_t i = at; counts && i < use; ++i) live_[i] += numel;
      last_issue_ = at;
      moved_.push_back({at, use, numel});
      return;
    }
    // Later gathers do not overtake this one.
    last_issue_ = std::max(last_issue_, use);
  }

  // Elements whose gather was issued until the place, and whose use comes behind it.
  int64_t on_the_way(size_t at) const {
    int64_t numel = 0;
    for (const OnTheWay& other : moved_) {
      if (other.issue <= at && at < other.use) numel += other.numel;
    }
    return numel;
  }

  const std::vector<Place*>& timeline_;
  const RewriteInputs& inputs_;
  const std::set<int>& resident_;
  std::vector<int64_t> live_;
  ByGroup<size_t> free_from_;  // given back, or published, behind this place
  size_t last_issue_ = 0;
  std::vector<OnTheWay> moved_;
};

}  // namespace

Rewrite prefetch() {
  return {.name = "prefetch",
          .needs = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            for (const auto& timeline : program.timelines()) {
              Mover(timeline, program.resident, inputs).run();
            }
          }};
}

}  // namespace zinc::zero
