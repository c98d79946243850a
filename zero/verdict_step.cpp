#include "zero/verdict_step.h"

#include <functional>
#include <vector>

namespace zinc::zero {

DeviceVerdict::Result VerdictStep::run(StepSums& sums, int64_t step) {
  using Part = RecordedPasses::StepPart;
  const bool records = recorded != nullptr && optimizer.num_scalars() > 0;
  const auto run_part = [&](Part part, const std::function<void()>& work) {
    if (records) {
      recorded->run_step(part, work);
    } else {
      work();
    }
  };
  sums.end_gradients();
  if (verdict.bring() && records) recorded->forget_step();
  const std::vector<ConstView> gradients = strategy.kept_gradients();
  run_part(Part::norm, [&] { verdict.measure(gradients); });
  verdict.gather();
  if (records) rules.bring_scalars(optimizer, step);
  run_part(Part::update, [&] {
    verdict.decide();
    strategy.step->run({.optimizer = optimizer,
                        .rules = rules,
                        .factor = verdict.factor(),
                        .skip = verdict.skip(),
                        .step = step});
    verdict.send();
  });
  strategy.weights->publish();
  strategy.gradients->discard();
  return verdict.read(sums.totals());
}

}  // namespace zinc::zero
