// apps/train/training_head.h: what a run of `zinc train` prints before its first step.
#pragma once

#include <vector>

#include "apps/console.h"
#include "apps/train/training_setup.h"
#include "comm/world.h"
#include "data/loader.h"
#include "nn/model.h"

namespace zinc::apps {

// Prints the table of the run and the notes on model, data and configuration. `sets`: what the run
// evaluates on, in the order of validation_names(). All ranks call it; rank 0 prints.
void show_head(Console& console, const TrainingSetup& setup, const TrainArguments& options,
               comm::World& world, nn::Model& model, const std::vector<data::EvaluationSet>& sets);

}  // namespace zinc::apps
