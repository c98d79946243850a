#include "zero/rewrites/rewrites.h"

namespace zinc::zero {

Rewrite update_weights() {
  return {.name = "update_weights",
          .gives = {ProgramOps::updates},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            std::vector<Op>& ops = program.step.front().after;
            ops.insert(ops.end(), {{OpKind::norm}, {OpKind::decide}});
            for (const int group : inputs.reduce_order) {
              if (inputs.groups[group].num_trained_parameters() > 0) {
                ops.push_back({OpKind::update, group});
              }
            }
            for (const OpKind kind : {OpKind::publish, OpKind::join}) {
              for (const int group : inputs.use_order) ops.push_back({kind, group});
            }
          }};
}

}  // namespace zinc::zero
