#include "zero/passes/passes.h"

namespace zinc::zero {

Pass update_weights() {
  return {.name = "update_weights",
          .gives = {"updates"},
          .rewrite = [](Program& program, const PassInputs& inputs) {
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
