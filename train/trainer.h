// train/trainer.h: the loop around an engine: steps, evaluations, figures, weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/data/loader.h"
#include "train/metrics/progress.h"
#include "train/metrics/step_metrics.h"
#include "train/trace/trace_writer.h"
#include "zero/engine.h"

namespace zinc::train {

// What the loop tells while it runs; on every rank, although most callers listen on rank 0 only.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void on_step(const StepMetrics&, const Progress&) {}
  // Before the first batch of an evaluation, and after each round of batches.
  virtual void on_evaluating(const EvaluationProgress&) {}
  virtual void on_evaluation(int64_t step, double val_loss, bool best) {
    static_cast<void>(step);
    static_cast<void>(val_loss);
    static_cast<void>(best);
  }
  virtual void on_note(const std::string&) {}  // what the user should know, and ends nothing
};

// Where a run stands beside its engine and its loader; a checkpoint keeps it.
struct TrainerState {
  int64_t tokens = 0;    // of all steps, all ranks
  int64_t samples = 0;   // likewise
  double seconds = 0.0;  // of training steps
  double loss = 0.0;     // of the last step
  std::optional<double> val_loss;
  std::optional<double> best_val_loss;
};

struct TrainerOptions {
  int64_t steps = 0;       // optimizer steps of the run, > 0
  int64_t eval_every = 0;  // steps between evaluations; 0: at the end only
  int64_t export_every = 0;  // steps between calls of save; 0: at the end only
  // Steps, and seconds of this rank's clock, between calls of checkpoint; 0: no such interval.
  int64_t checkpoint_every = 0;
  double checkpoint_seconds = 0.0;
  // Called on every rank when the first step is done, before anything of it is reported or saved.
  // May be empty.
  std::function<void()> started;
  // Called on every rank: "step-000100", "best" (after an evaluation that is better than all
  // before; one that is not finite is not), "final", before the last evaluation. May be empty.
  std::function<void(const std::string& name)> save;
  // Called on every rank between steps: when it is due, before a run that was told to stop ends,
  // and at the end of one that has intervals. May be empty.
  std::function<void(bool last)> checkpoint;
  // Called on every rank after every step. May be empty.
  std::function<void()> after_step;
  // Time of the system's clock, in seconds, at which the run will be ended from outside: it stops in
  // time to save. 0: not known.
  double ends_at = 0.0;
  TrainerState start{};  // of a run that goes on: its steps are the engine's
  // Becomes true (from another thread) when the run should end after the step under way, or after
  // the batch of an evaluation.
  const std::atomic<bool>* stop = nullptr;
  // Takes the events of the engine's context after every step; null: nobody does.
  TraceWriter* trace = nullptr;
};

struct TrainResult {
  int64_t steps = 0;
  double loss = 0.0;               // of the last step
  std::optional<double> val_loss;  // of the last evaluation
  std::optional<double> best_val_loss;
  bool stopped = false;             // by options.stop, before all steps were done
  bool evaluation_stopped = false;  // by options.stop: the last one, after all steps
  double seconds = 0.0;             // of training steps, without evaluation and saving
  int64_t tokens = 0;
  double seconds_per_step = 0.0;  // mean without the first step, which warms up; 0 below two steps
};

class Trainer {
 public:
  // `evaluation` may be null. Everything must outlive the trainer. Throws InvalidArgument for
  // options outside their ranges.
  Trainer(zero::Engine& engine, Loader& loader, const EvaluationSet* evaluation,
          std::vector<std::unique_ptr<MetricsSink>> sinks, TrainerObserver* observer,
          TrainerOptions options);

  // Collective. A step that throws NumericsError, as it does on every rank, has changed no weight:
  // they are saved under the name of the step before, where they are not saved yet and save()
  // succeeds, and the error goes on.
  TrainResult run();

  TrainerState state() const;  // between steps

  // The mean loss over the evaluation set: the same figure in every world. Absent where
  // options.stop ended it. Collective.
  std::optional<double> evaluate();

 private:
  StepMetrics train_step();
  StepMetrics train_step_or_save();
  void save_final();
  bool is_told_to_stop();
  bool is_checkpoint_due(bool last);
  void save_checkpoint(bool last);
  void evaluate_and_keep_best(StepMetrics& metrics);
  void drain_trace();
  void report(const StepMetrics& metrics);
  void save(const std::string& name);

  zero::Engine& engine_;
  Loader& loader_;
  const EvaluationSet* evaluation_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  TrainerObserver* observer_;
  TrainerOptions options_;
  TrainResult result_;
  double first_step_seconds_ = 0.0;
  double flops_per_token_ = 0.0;
  int64_t tokens_per_step_ = 0;
  int64_t samples_ = 0;
  int64_t first_step_ = 0;        // that was done before this run
  int64_t saved_steps_ = 0;       // after which weights were saved last; "best" does not count
  int64_t checkpoint_steps_ = 0;  // after which the last checkpoint was saved
  double checkpoint_clock_ = 0.0;
  double checkpoint_takes_ = 0.0;  // seconds, the longest
  double seconds_before_ = 0.0;    // of steps of earlier runs
};

}  // namespace zinc::train
