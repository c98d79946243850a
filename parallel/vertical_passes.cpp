#include "parallel/vertical_passes.h"

#include <utility>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "core/context.h"

namespace zinc::parallel {

VerticalPasses::VerticalPasses(nn::Model& model, uint64_t step,
                               const std::vector<SideBySide>& micro_batches)
    : model_(nn::require_interface<nn::Staged>(model, "passes side by side")),
      segments_(nn::stage_segments(model_, model.recompute_every(), model.most_recomputed())) {
  for (const SideBySide& of : micro_batches) {
    passes_.push_back({.of = of, .random = {.step = step, .micro_batch = of.global_micro_batch}});
  }
}

void VerticalPasses::forward(const Enter& enter) {
  RandomState& random = Context::current().random();
  for (const nn::StageSegment& segment : segments_) {
    for (size_t i = 0; i < passes_.size(); ++i) {
      Pass& pass = passes_[i];
      enter(static_cast<int64_t>(i));
      pass.marks.push_back(autograd::last_recorded());
      random.restore(pass.random);
      const autograd::ExpectedLossGradient expected(pass.of.seed);
      pass.x = nn::run_segment(model_, segment, *pass.of.batch, std::move(pass.x));
      pass.random = random.snapshot();
    }
  }
}

std::vector<BatchLoss> VerticalPasses::losses() const {
  for (const Pass& pass : passes_) nn::detail::require_loss(pass.x);
  std::vector<BatchLoss> losses;
  for (const Pass& pass : passes_) losses.push_back({pass.x[0], pass.of.batch->num_targets});
  return losses;
}

void VerticalPasses::backward(const Enter& enter) {
  std::vector<autograd::BackwardInParts> parts;
  for (const Pass& pass : passes_) parts.emplace_back(pass.x[0], pass.of.seed);
  for (size_t segment = segments_.size(); segment-- > 0;) {
    for (size_t i = 0; i < passes_.size(); ++i) {
      enter(static_cast<int64_t>(i));
      const int64_t mark = segment == 0 ? 0 : passes_[i].marks[segment];
      parts[i].run_back_to(mark);
    }
  }
}

}  // namespace zinc::parallel
