// train/train_batch.h: a whole step in one call, for an engine with or without a pipeline.
//
//   for (int64_t step = 0; step < steps; ++step) {
//     zinc::StepResult result = zinc::train_batch(engine, loader);
//   }
#pragma once

#include <functional>

#include "data/loader.h"
#include "nn/batch.h"
#include "zero/engine.h"

namespace zinc::train {

// Takes the micro-batches of one optimizer step from the loader, passes them through the model and
// makes the step. `on_batch`: called with each of them; may be empty. Collective.
zero::StepResult train_batch(zero::Engine& engine, data::Loader& loader,
                             const std::function<void(const nn::Batch&)>& on_batch = {});

// The mean loss over the targets of as many micro-batches as a step has, of all data ranks, without
// dropout and gradients; the same on every rank. Collective.
double eval_batch(zero::Engine& engine, data::Loader& loader);

}  // namespace zinc::train
