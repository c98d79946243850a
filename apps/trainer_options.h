// apps/trainer_options.h: the options for the length of a run, its evaluations, and the choice of
// its best weights. They have the names of transformers' Trainer if they mean the same.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "train/training_options.h"

namespace zinc::apps {

// What the command line says of train::TrainingOptions in words of its own.
struct TrainerArguments {
  double epochs = 0.0;            // instead of steps; 0: not given
  std::string eval_strategy;      // "no", "steps", "epoch"; empty: not given
  std::set<std::string> best_by;  // the options about the best model that were given
};

void add_trainer_options(CLI::App& verb, train::TrainingOptions& training,
                         TrainerArguments& arguments);

// ConfigError for options that contradict each other, or that need evaluations in a run without
// them, and for a metric that none of the validation sets `sets` has.
void require_consistent(const train::TrainingOptions& training, const TrainerArguments& arguments,
                        const std::vector<std::string>& sets);

// The interval of evaluations in words, ready for "... and at the end"; empty: at the end only.
std::string when_evaluated(const train::TrainingOptions& training);

}  // namespace zinc::apps
