#include "zero/passes/passes.h"

namespace zinc::zero {

std::vector<Pass> choose_passes(const StepPolicy& policy) {
  std::vector<Pass> passes{reduce_gradients(), update_weights()};
  if (policy.pipeline.size > 1) passes.push_back(pipeline());
  if (policy.update == UpdateTime::during_backward) passes.push_back(update_early());
  if (policy.update == UpdateTime::beside_forward) passes.push_back(update_late());
  if (!policy.shards_parameters) return passes;
  passes.push_back(gather_and_release());
  if (policy.resident_bytes > 0) passes.push_back(keep_through_step());
  passes.push_back(keep_resident());
  if (policy.gathers_ahead) passes.push_back(prefetch());
  if (policy.swaps_parameters) passes.push_back(read_parameters());
  return passes;
}

}  // namespace zinc::zero
