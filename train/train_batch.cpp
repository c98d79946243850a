#include "train/train_batch.h"

#include <utility>
#include <vector>

namespace zinc::train {

zero::StepResult train_batch(zero::Engine& engine, data::Loader& loader,
                             const std::function<void(const nn::Batch&)>& on_batch) {
  zero::StepResult step;
  do {
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < engine.config().batches_per_call(); ++i) {
      const nn::Batch& batch = batches.emplace_back(loader.next());
      if (on_batch) on_batch(batch);
    }
    engine.run_passes(batches);
    step = engine.step();
  } while (step.outcome == zero::StepOutcome::accumulated);
  return step;
}

double eval_batch(zero::Engine& engine, data::Loader& loader) {
  zero::Evaluation total;
  for (int64_t i = 0; i < engine.config().batch.accumulation; ++i) {
    for (const zero::Evaluation& part : gather(engine, engine.evaluate(loader.next()))) {
      total += part;
    }
  }
  return total.mean();
}

}  // namespace zinc::train
