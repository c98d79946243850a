#include <algorithm>
#include <cstddef>
#include <vector>

#include "zero/passes/passes.h"

namespace zinc::zero {
namespace {

class Publishing {
 public:
  explicit Publishing(const PassInputs& inputs)
      : order_(inputs.use_order), places_(order_.size()), ahead_(inputs.policy.groups_ahead) {
    for (size_t i = 0; i < order_.size(); ++i) places_[static_cast<size_t>(order_[i])] = i;
  }

  void after_step(std::vector<Op>& ops) { publish_until(ahead_, ops); }
  // A use of the group comes.
  void before_use(int group, std::vector<Op>& ops) {
    const size_t place = places_[static_cast<size_t>(group)];
    join_until(place + 1, ops);
    publish_until(place + 1 + ahead_, ops);
  }
  void at_end(std::vector<Op>& ops) { join_until(order_.size(), ops); }

 private:
  void publish_until(size_t end, std::vector<Op>& ops) {
    for (; published_ < std::min(end, order_.size()); ++published_) {
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
  std::vector<size_t> places_;  // of groups, in order_
  const size_t ahead_;
  size_t published_ = 0, joined_ = 0;
};

}  // namespace

Pass publish_updates() {
  return {.name = "publish_updates",
          .gives = {"publishes"},
          .rewrite = [](Program& program, const PassInputs& inputs) {
            Publishing after_step(inputs);
            after_step.after_step(program.step.back().after);
            for (auto& [kind, body] : program.bodies) {
              if (!kind.first) continue;
              Publishing publishing = after_step;
              for (Place& place : body.forward) {
                if (place.event.kind == EventKind::use) {
                  publishing.before_use(place.event.parameter.group, place.before);
                }
                if (place.event.kind == EventKind::end) publishing.at_end(place.before);
              }
            }
          }};
}

}  // namespace zinc::zero
