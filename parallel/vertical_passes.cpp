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

void VerticalPasses::run(size_t segment, Pass& pass) {
  RandomState& random = Context::current().random();
  pass.marks.push_back(autograd::last_recorded());
  random.restore(pass.random);
  const autograd::ExpectedLossGradient expected(pass.of.seed);
  pass.x = nn::run_segment(model_, segments_[segment], *pass.of.batch, std::move(pass.x));
  pass.random = random.snapshot();
}

void VerticalPasses::forward(const Enter& enter) {
  for (size_t segment = 0; segment + 1 < segments_.size(); ++segment) {
    for (size_t i = 0; i < passes_.size(); ++i) {
      enter(static_cast<int64_t>(i));
      run(segment, passes_[i]);
    }
  }
}

std::vector<BatchLoss> VerticalPasses::losses() const {
  std::vector<BatchLoss> losses;
  for (const Pass& pass : passes_) losses.push_back({pass.x[0], pass.of.batch->num_targets});
  return losses;
}

void VerticalPasses::backward(const Enter& enter, const Around& around,
                              const std::function<void()>& ahead_of_last) {
  std::vector<autograd::BackwardInParts> parts;
  for (size_t segment = segments_.size(); segment-- > 0;) {
    for (size_t i = 0; i < passes_.size(); ++i) {
      Pass& pass = passes_[i];
      enter(static_cast<int64_t>(i));
      if (segment + 1 == segments_.size()) {
        const auto to_loss = [&] {
          run(segment, pass);
          nn::detail::require_loss(pass.x);
        };
        if (around) {
          around(static_cast<int64_t>(i), to_loss);
        } else {
          to_loss();
        }
        if (ahead_of_last && i + 1 == passes_.size()) ahead_of_last();
        parts.emplace_back(pass.x[0], pass.of.seed);
      }
      parts[i].run_back_to(segment == 0 ? 0 : pass.marks[segment]);
    }
  }
}

}  // namespace zinc::parallel
