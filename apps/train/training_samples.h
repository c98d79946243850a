// apps/train/training_samples.h: texts that the model of a run writes while it is trained.
#pragma once

#include <atomic>
#include <vector>

#include "apps/console.h"
#include "apps/train/training_setup.h"
#include "train/trainer.h"
#include "zero/engine.h"

namespace zinc::apps {

// Writes a text behind each of --sample-prompt and prints it. The texts are the same on every rank.
// The model sees at most --seq tokens: it may know nothing of longer text. An error is printed as a
// note and does not end the run. `stop`: a signal came; then there is no sample. Collective.
std::vector<train::SampleText> make_samples(Console& console, zero::Engine& engine,
                                            const TrainArguments& options,
                                            const TrainingSetup& setup,
                                            const std::atomic<bool>& stop);

}  // namespace zinc::apps
