// apps/train/training_setup.h: what a run of `zinc train` is made of, found from its command line
// before ranks are connected.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/run_data.h"
#include "apps/run_forecast.h"
#include "apps/run_tokenizer.h"
#include "apps/trainer_options.h"
#include "apps/tuning_options.h"
#include "comm/agreement.h"
#include "hub/model.h"
#include "train/config/config.h"
#include "train/training_options.h"

namespace zinc::apps {

struct TrainArguments {
  std::string config;
  std::string model;
  RunDataArguments data;
  std::string init;
  std::string tokenizer;
  std::string device = "cpu";
  std::string comm = "auto";
  std::string dtype;
  std::vector<std::string> sample_prompts;  // none: a line's end
  std::string hardware;
  train::TrainingOptions training;
  TrainerArguments trainer;
  int64_t seq = 0;
  int64_t eval_batches = 0;  // 0: not given
  int threads = 0;           // 0: not given
  bool dry_run = false;
  TuningArguments tuning;
  bool save_frozen = false;
  train::Overrides flags;
};

// The members stand in the order in which they are found.
struct TrainingSetup {
  hub::ModelConfigFile model;
  RunTokenizer tokenizer;
  std::unique_ptr<RunData> data;
  bool vocabulary_replaced = false;
  std::vector<std::string> initialised;  // parameters that --init does not hold
  train::Config config;
  int64_t seq = 0;
  int64_t steps = 0;  // 0: --epochs says it, when the data are open
};

// Throws ConfigError, DataError or IoError. `world_size`: all ranks of the run.
TrainingSetup set_up(const TrainArguments& options, int64_t world_size);

// The folder that holds the frozen weights, which checkpoints then leave out. Empty: checkpoints
// hold them. The folder's config.json says how its tensors are named.
std::string frozen_from(const TrainingSetup& setup, const TrainArguments& options);

// Whether batches may be shorter than --seq. A CUDA graph is recorded for one shape.
bool has_short_batches(const TrainingSetup& setup);

// What the planner reads of the run.
PlannedRun planned(const TrainingSetup& setup, const TrainArguments& options);

// What all ranks must have alike before they do anything together that depends on it.
std::vector<comm::Fingerprint> fingerprints(const TrainingSetup& setup,
                                            const TrainArguments& options);

}  // namespace zinc::apps
