#include <cstddef>
#include <cstdint>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

// The finished gradients of a backward phase, and the group that is reduced next.
class Turns {
 public:
  Turns(const RewriteInputs& inputs, const BackwardTurn& turn, int64_t together)
      : order_(inputs.reduce_order) {
    std::erase_if(order_, [&](int group) { return inputs.turn_of(group) != turn; });
    for (const ShardGroup& group : inputs.groups) {
      missing_.emplace_back(static_cast<size_t>(together), group.num_trained_parameters());
    }
  }

  void finish(const StepEvent& event) {
    --missing_[event.parameter.group][static_cast<size_t>(event.micro_batch)];
  }
  // Appends the reduces that may go out now; with `all`, the rest.
  void go_out(bool all, std::vector<Op>& ops) {
    for (; next_group_ < order_.size(); ++next_group_, next_micro_batch_ = 0) {
      const std::vector<int>& missing = missing_[order_[next_group_]];
      for (; next_micro_batch_ < missing.size(); ++next_micro_batch_) {
        if (!all && missing[next_micro_batch_] > 0) return;
        ops.push_back(
            {OpKind::reduce, order_[next_group_], static_cast<int64_t>(next_micro_batch_)});
      }
    }
  }

 private:
  std::vector<int> order_;
  ByGroup<std::vector<int>> missing_;  // by group, by micro-batch
  size_t next_group_ = 0, next_micro_batch_ = 0;
};

void reduce(Phase& backward, const BackwardTurn& turn, const RewriteInputs& inputs) {
  int64_t together = 1;
  for (const Place& place : backward) together = std::max(together, place.event.micro_batch + 1);
  Turns turns(inputs, turn, together);
  for (Place& place : backward) {
    if (place.event.kind == EventKind::end) turns.go_out(true, place.before);
    if (place.event.kind != EventKind::gradient_done) continue;
    turns.finish(place.event);
    if (!inputs.policy.reduces_after_backward) turns.go_out(false, place.after);
  }
}

}  // namespace

Rewrite reduce_gradients() {
  return {.name = "reduce_gradients",
          .gives = {ProgramOps::reduces},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            for (auto& [kind, body] : program.bodies) {
              if (!kind.last && !inputs.policy.reduces_every) continue;
              reduce(body.backward, {.part = kind.part}, inputs);
              reduce(body.weights, {.part = kind.part, .deferred = true}, inputs);
            }
          }};
}

}  // namespace zinc::zero
