#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {
namespace {

int64_t num_matrices(const ShardGroup& group) {
  return std::ranges::count(group.placements(), SegmentKind::whole, &Placement::segment);
}

}  // namespace

Rewrite transform_whole() {
  return {.name = "transform_whole",
          .needs = {ProgramOps::updates},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            std::vector<Op>& ops = program.step.front().after;
            std::vector<Op> before, updates, after;
            for (const Op& op : ops) {
              (op.kind < OpKind::update    ? before
               : op.kind == OpKind::update ? updates
                                           : after)
                  .push_back(op);
            }
            std::vector<Op> made, waiting;
            int64_t matrices = 0;
            const auto end_window = [&] {
              if (waiting.empty()) return;
              for (const Op& op : waiting) made.push_back({OpKind::direct, op.group});
              made.push_back({OpKind::transform, waiting.back().group});
              made.insert(made.end(), waiting.begin(), waiting.end());
              waiting.clear();
              matrices = 0;
            };
            for (const Op& op : updates) {
              const ShardGroup& group = inputs.groups[op.group];
              if (!has_whole(group)) {
                end_window();
                made.push_back(op);
                continue;
              }
              waiting.push_back(op);
              matrices += num_matrices(group);
              if (matrices >= kMatricesPerRank * group.world()) end_window();
            }
            end_window();
            ops = std::move(before);
            ops.insert(ops.end(), made.begin(), made.end());
            ops.insert(ops.end(), after.begin(), after.end());
          }};
}

}  // namespace zinc::zero
