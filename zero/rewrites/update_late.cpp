#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

// How far the updates have come, in the order of uses.
class Progress {
 public:
  explicit Progress(const RewriteInputs& inputs)
      : order_(inputs.use_order),
        trained_(inputs.reduce_order.begin(), inputs.reduce_order.end()),
        places_(order_.size()),
        ahead_(inputs.policy.groups_ahead) {
    for (size_t i = 0; i < order_.size(); ++i) places_[order_[i]] = i;
  }

  void update_all(std::vector<Op>& ops) { update_until(order_.size(), ops); }
  void after_step(std::vector<Op>& ops) { publish_until(ahead_, ops); }
  // Appends the ops that must come before a use of the group.
  void before_use(int group, std::vector<Op>& ops) {
    const size_t place = places_[group];
    join_until(place + 1, ops);
    publish_until(place + 1 + ahead_, ops);
  }
  void at_end(std::vector<Op>& ops) { join_until(order_.size(), ops); }

 private:
  void update_until(size_t end, std::vector<Op>& ops) {
    for (; updated_ < std::min(end, order_.size()); ++updated_) {
      if (trained_.contains(order_[updated_])) ops.push_back({OpKind::update, order_[updated_]});
    }
  }
  void publish_until(size_t end, std::vector<Op>& ops) {
    for (; published_ < std::min(end, order_.size()); ++published_) {
      update_until(published_ + 1, ops);
      ops.push_back({OpKind::publish, order_[published_]});
    }
  }
  void join_until(size_t end, std::vector<Op>& ops) {
    for (; joined_ < std::min(end, order_.size()); ++joined_) {
      publish_until(joined_ + 1, ops);
      ops.push_back({OpKind::join, order_[joined_]});
    }
  }

  const std::vector<int>& order_;
  const std::set<int> trained_;
  ByGroup<size_t> places_;  // index of a group in order_
  const size_t ahead_;
  size_t updated_ = 0, published_ = 0, joined_ = 0;
};

}  // namespace

Rewrite update_late() {
  return {.name = "update_late",
          .needs = {ProgramOps::updates},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            std::vector<Op>& in_step = program.step.front().after;
            std::erase_if(in_step, [](const Op& op) { return op.kind >= OpKind::update; });
            Progress in_order(inputs);
            if (inputs.policy.updates_in_order) in_order.update_all(in_step);
            in_order.after_step(program.step.back().after);
            for (auto& [kind, body] : program.bodies) {
              if (!kind.first) continue;
              Progress progress = in_order;
              for (Place& place : body.forward) {
                if (place.event.kind == EventKind::use) {
                  progress.before_use(place.event.parameter.group, place.before);
                }
                if (place.event.kind == EventKind::end) progress.at_end(place.before);
              }
            }
          }};
}

}  // namespace zinc::zero
