#include <cstddef>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

void gather_at_uses(const std::vector<Place*>& timeline, const RewriteInputs& inputs) {
  ByGroup<int> pins(inputs.groups.size(), 0);
  for (Place* place : timeline) {
    const int group = place->event.parameter.group;
    int& of_group = pins[group];
    if (place->event.kind == EventKind::use && of_group++ == 0) {
      place->before.push_back({OpKind::gather, group});
    }
    if (place->event.kind == EventKind::release && --of_group == 0) {
      place->after.push_back({OpKind::release, group});
    }
  }
}

}  // namespace

Rewrite gather_and_release() {
  return {.name = "gather_and_release",
          .gives = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            for (const auto& timeline : program.timelines()) gather_at_uses(timeline, inputs);
          }};
}

}  // namespace zinc::zero
