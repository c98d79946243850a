// train/trainer.h: the loop around an engine: steps, evaluations, figures, weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/best_model.h"
#include "train/data/loader.h"
#include "train/metrics/progress.h"
#include "train/metrics/step_metrics.h"
#include "train/trace/trace_writer.h"
#include "zero/engine.h"

namespace zinc::train {

// What a run is evaluated on: nothing, one set, or several with names.
class ValidationSets {
 public:
  struct Set {
    std::string name;  // empty: the only one
    const EvaluationSet* batches;
  };
  // NOLINTNEXTLINE(google-explicit-constructor): one set, or null
  ValidationSets(const EvaluationSet* only = nullptr) {
    if (only != nullptr) sets_.push_back({"", only});
  }
  // InvalidArgument for a name that is empty, is there twice, or has other characters than letters,
  // digits, '.', '_' and '-'.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ValidationSets(std::vector<Set> sets);

  const std::vector<Set>& sets() const { return sets_; }
  bool empty() const { return sets_.empty(); }
  std::vector<std::string> names() const;

 private:
  std::vector<Set> sets_;
};

// Of one evaluation.
struct EvaluationResult {
  int64_t step = 0;           // after which it was; 0: before the first
  std::vector<SetLoss> sets;  // in their order
  double val_loss = 0.0;      // of the set that decides
  std::string metric;         // BestModelOptions
  double value = 0.0;         // of the metric
  bool best = false;          // so far
};

struct SavedFiles {
  int64_t step = 0;
  std::string path;            // a folder
  bool is_checkpoint = false;  // false: weights
};

struct TrainResult;

// What the loop tells while it runs: on every rank, in the same order, between steps. Most callers
// act on rank 0 only; one that asks the engine something does so on every rank. What it throws ends
// the run.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void on_step(const StepMetrics&, const Progress&) {}
  // Before the first batch of an evaluation, and after each round of batches.
  virtual void on_evaluating(const EvaluationProgress&) {}
  virtual void on_evaluate(const EvaluationResult&) {}
  // Weights or a checkpoint of a train::Run are there whole.
  virtual void on_save(const SavedFiles&) {}
  virtual void on_end(const TrainResult&) {}   // not of a run that ends by an error
  virtual void on_note(const std::string&) {}  // what the user should know, and ends nothing
};

// Several observers as one. They outlive it.
class ObserverList final : public TrainerObserver {
 public:
  explicit ObserverList(std::vector<TrainerObserver*> observers)
      : observers_(std::move(observers)) {}
  void on_step(const StepMetrics& metrics, const Progress& progress) override;
  void on_evaluating(const EvaluationProgress& progress) override;
  void on_evaluate(const EvaluationResult& result) override;
  void on_save(const SavedFiles& files) override;
  void on_end(const TrainResult& result) override;
  void on_note(const std::string& text) override;

 private:
  std::vector<TrainerObserver*> observers_;
};

// Where a run stands beside its engine and its loader; a checkpoint keeps it.
struct TrainerState {
  int64_t tokens = 0;    // of all steps, all ranks
  int64_t samples = 0;   // likewise
  double seconds = 0.0;  // of training steps
  double loss = 0.0;     // of the last step
  std::optional<double> val_loss;
  BestSoFar best;
};

struct TrainerOptions {
  int64_t steps = 0;  // optimizer steps of the run, > 0
  // When to evaluate beside the end: every so many steps, after each step that ends an epoch,
  // before the first step. The last is a figure alone: it is never the best, and no patience counts
  // it.
  int64_t eval_every = 0;
  bool eval_each_epoch = false;
  bool eval_on_start = false;
  BestModelOptions best{};
  int64_t export_every = 0;  // steps between calls of save; 0: at the end only
  // Called on every rank: texts that the model writes now, for the files of figures. Every so many
  // steps, and at the end of a run that was not told to stop. May be empty.
  std::function<std::vector<SampleText>()> sample;
  int64_t sample_every = 0;     // 0: at the end only
  int64_t histogram_every = 0;  // steps between histograms of the weights; 0: none
  // Steps, and seconds of this rank's clock, between calls of checkpoint; 0: no such interval.
  int64_t checkpoint_every = 0;
  double checkpoint_seconds = 0.0;
  // Called on every rank when the first step is done, before anything of it is reported or saved.
  // May be empty.
  std::function<void()> started;
  // Called on every rank: "step-000100", "best" (after an evaluation that is better than all
  // before; one that is not finite is not), "final", before the last evaluation, and again where
  // the best weights were loaded. May be empty.
  std::function<void(const std::string& name)> save;
  // With best.load_at_end: gives the engine the weights that were saved as "best" after that step.
  // False: they are not there any more.
  std::function<bool(const BestSoFar& best)> load_best;
  // Called on every rank between steps: when it is due, before a run that was told to stop ends,
  // and at the end of one that has intervals. May be empty.
  std::function<void(bool last)> checkpoint;
  // Called on every rank after every step. May be empty.
  std::function<void()> after_step;
  // Time of the system's clock, in seconds, at which the run will be ended from outside: it stops
  // in time to save. 0: not known.
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
  BestSoFar best;
  bool stopped = false;        // by options.stop, before all steps were done
  bool stopped_early = false;  // by options.best.patience
  bool loaded_best = false;    // the engine, and what was saved as "final", hold the best weights
  bool evaluation_stopped = false;  // by options.stop: the last one, after all steps
  double seconds = 0.0;             // of training steps, without evaluation and saving
  int64_t tokens = 0;
  double seconds_per_step = 0.0;  // mean without the first step, which warms up; 0 below two steps
};

class Trainer {
 public:
  // Everything must outlive the trainer. Throws InvalidArgument for options outside their ranges or
  // without the evaluations that they are about, ConfigError for a metric that there is not.
  Trainer(zero::Engine& engine, Loader& loader, ValidationSets validation,
          std::vector<std::unique_ptr<MetricsSink>> sinks, TrainerObserver* observer,
          TrainerOptions options);

  // Collective. A step that throws NumericsError, as it does on every rank, has changed no weight:
  // they are saved under the name of the step before, where they are not saved yet and save()
  // succeeds, and the error goes on.
  TrainResult run();

  TrainerState state() const;  // between steps

  // The mean loss over each validation set: the same figures in every world. Absent where
  // options.stop ended it. Collective.
  std::optional<std::vector<SetLoss>> evaluate();

 private:
  StepMetrics train_step();
  StepMetrics train_step_or_save();
  void save_final();
  void load_best();
  bool is_done() const;
  bool is_evaluation_due(int64_t samples_before) const;
  std::optional<StepMetrics> evaluate_before_first_step();
  std::optional<double> evaluate_on(const EvaluationSet& set, EvaluationProgress progress);
  void tell_of(const StepMetrics& metrics, bool best);
  template <class Write>
  void write_beside(const Write& write);
  void write_samples();
  void write_samples_of_before();
  void write_histograms();
  FigureTime now() const;
  bool is_told_to_stop();
  bool is_checkpoint_due(bool last);
  void save_checkpoint(bool last);
  void evaluate_and_keep_best(StepMetrics& metrics);
  void drain_trace();
  void report(const StepMetrics& metrics);
  void save(const std::string& name);

  zero::Engine& engine_;
  Loader& loader_;
  const ValidationSets validation_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  TrainerObserver* observer_;
  TrainerOptions options_;
  BestModel best_;
  bool best_begins_anew_ = false;  // that of options.start has other terms
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
