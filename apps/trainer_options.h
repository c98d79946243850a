// apps/trainer_options.h: the options for the length of a run, its evaluations, and the choice of
// its best weights. They have the names of transformers' Trainer if they mean the same.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/best_model.h"

namespace zinc::apps {

struct TrainerArguments {
  int64_t steps = 0;    // 0: not given
  double epochs = 0.0;  // likewise
  int64_t eval_every = 0;
  std::string eval_strategy;  // "no", "steps", "epoch"; empty: not given
  bool eval_on_start = false;
  std::string metric;  // empty: not given
  std::optional<bool> greater_is_better;
  bool load_best_at_end = false;
  std::optional<int64_t> patience;
  std::optional<double> threshold;

  bool evaluates_each_epoch() const { return eval_strategy == "epoch"; }
  // The interval in words, ready for "... and at the end"; empty: at the end only.
  std::string when_evaluated() const;
};

void add_trainer_options(CLI::App& verb, TrainerArguments& arguments);

// ConfigError for options that contradict each other, or that need evaluations in a run without
// them.
void require_consistent(const TrainerArguments& arguments);

// `sets`: names of the validation sets. ConfigError for an unknown metric.
train::BestModelOptions best_model_of(const TrainerArguments& arguments,
                                      const std::vector<std::string>& sets);

}  // namespace zinc::apps
