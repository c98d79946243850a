// train/training_options.h: what a user asks of a run, beside the configuration.
//
// `zinc train` parses its command line into this struct, train::Run takes it, and hands it to the
// Trainer as it is. A new option of training is a member here, the line of
// apps/trainer_options.cpp that parses it, and the place that uses it.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "train/best_model.h"

namespace zinc::train {

struct TrainingOptions {
  // --- of a train::Run alone
  std::string out;     // the folder of the run
  bool force = false;  // replaces another run there, at the first step

  // --- of the loop
  int64_t steps = 0;  // optimizer steps of the run, > 0
  // When to evaluate, apart from the end: every `eval_every` steps; after each step that ends an
  // epoch; before the first step. The evaluation before the first step is a figure only: it is
  // never the best, and patience does not count it.
  int64_t eval_every = 0;
  bool eval_each_epoch = false;
  bool eval_on_start = false;
  // Steps, or with eval_each_epoch epochs, before the first evaluation of these intervals.
  double eval_delay = 0.0;
  BestModelOptions best{};
  int64_t export_every = 0;     // steps between saved weights; 0: at the end only
  int64_t sample_every = 0;     // steps between texts that the model writes; 0: at the end only
  int64_t histogram_every = 0;  // steps between histograms of the weights; 0: none

  // --- of a train::Run alone
  // The checkpoint that the run continues from. Empty: it begins anew. "auto": the newest whole
  // checkpoint in `out`; without one the run begins anew. Otherwise a checkpoint, a folder of
  // checkpoints, or the folder of a run.
  std::string resume;
  // The run continues without the checkpoint's optimizer states. They begin at zero, and their bias
  // corrections anew; steps, schedule and data go on.
  bool reset_optimizer = false;
  // The run continues without what signs left out (Note [Sums as signs] in zero/group/sign_sums.h),
  // which belongs to as many ranks as the checkpoint was saved by.
  bool reset_errors = false;
  bool allow_damaged = false;  // saves weights with NaN or infinities, but not as the best
};

// The options that all ranks must have the same, as one text. A member that is not named here does
// not compile. Hosts may know the folders under other names.
inline std::string text_of(const TrainingOptions& options) {
  const auto& [out, force, steps, eval_every, eval_each_epoch, eval_on_start, eval_delay, best,
               export_every, sample_every, histogram_every, resume, reset_optimizer, reset_errors,
               allow_damaged] = options;
  const auto& [metric, greater_is_better, patience, threshold, load_at_end] = best;
  return str(steps, ' ', eval_every, ' ', eval_each_epoch, ' ', eval_on_start, ' ', eval_delay, ' ',
             metric, ' ', greater_is_better.value_or(false), ' ', patience, ' ', threshold, ' ',
             load_at_end, ' ', export_every, ' ', sample_every, ' ', histogram_every, ' ',
             reset_optimizer, ' ', reset_errors, ' ', allow_damaged);
}

}  // namespace zinc::train
