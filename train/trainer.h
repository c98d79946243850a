// train/trainer.h: the training loop around an engine: steps, evaluations, figures, saved weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/best_model.h"
#include "train/metrics/progress.h"
#include "train/metrics/step_metrics.h"
#include "train/trace/trace_writer.h"
#include "train/training_options.h"
#include "zero/engine.h"

namespace zinc::train {

// The validation sets of a run: none, one, or several with names.
class ValidationSets {
 public:
  struct Set {
    std::string name;  // empty: the only one
    const data::EvaluationSet* batches;
  };
  // NOLINTNEXTLINE(google-explicit-constructor): one set, or null
  ValidationSets(const data::EvaluationSet* only = nullptr) {
    if (only != nullptr) sets_.push_back({"", only});
  }
  // Throws InvalidArgument for a name that is empty, occurs twice, or has other characters than
  // letters, digits, '.', '_' and '-'.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ValidationSets(std::vector<Set> sets);

  const std::vector<Set>& sets() const { return sets_; }
  bool empty() const { return sets_.empty(); }
  std::vector<std::string> names() const;

 private:
  std::vector<Set> sets_;
};

// The result of one evaluation.
struct EvaluationResult {
  int64_t step = 0;           // the step before the evaluation; 0: before the first step
  std::vector<SetLoss> sets;  // in the order of ValidationSets
  double val_loss = 0.0;      // of the set that decides which weights are the best
  std::string metric;         // BestModelOptions
  double value = 0.0;         // of the metric
  bool best = false;          // the best so far
};

struct SavedFiles {
  int64_t step = 0;
  std::string path;            // a folder
  bool is_checkpoint = false;  // false: weights
};

struct TrainResult;

// Gets the events of the loop: on every rank, in the same order, between steps. Most observers act
// on rank 0 only. One that calls a collective function of the engine must do so on every rank. An
// exception from an observer ends the run.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void on_step(const StepMetrics&, const Progress&) {}
  // Before the first batch of an evaluation, and after each round of batches.
  virtual void on_evaluating(const EvaluationProgress&) {}
  virtual void on_evaluate(const EvaluationResult&) {}
  // Weights or a checkpoint of a train::Run were saved completely.
  virtual void on_save(const SavedFiles&) {}
  virtual void on_end(const TrainResult&) {}   // not after an error
  virtual void on_note(const std::string&) {}  // for the user; the run continues
};

// Several observers as one. They must outlive the list.
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

// The part of a run's state that is neither the engine's nor the loader's. A checkpoint keeps it.
struct TrainerState {
  int64_t tokens = 0;    // of all steps, all ranks
  int64_t samples = 0;   // of all steps, all ranks
  double seconds = 0.0;  // of training steps
  double loss = 0.0;     // of the last step
  std::optional<double> val_loss;
  BestSoFar best;
};

// What the owner of a trainer lends it: calls that it makes, and what it begins from and ends by.
struct TrainerParts {
  // Returns texts that the model writes now, for the files of figures. Called on every rank, every
  // `sample_every` steps and at the end of a run that was not told to stop. May be empty.
  std::function<std::vector<SampleText>(zero::Engine& engine)> sample;
  // Intervals between calls of `checkpoint`: steps, and seconds of this rank's clock. 0: no such
  // interval.
  int64_t checkpoint_every = 0;
  double checkpoint_seconds = 0.0;
  // Called on every rank when the first step is done, before its figures are reported or saved. May
  // be empty.
  std::function<void()> started;
  // Saves the weights under a name; called on every rank. May be empty.
  // - "step-000100": by TrainingOptions::export_every
  // - "best": after an evaluation that is better than all before; never for a loss that is not
  //   finite
  // - "final": before the last evaluation, and again after the best weights were loaded
  std::function<void(const std::string& name)> save;
  // False: a run whose "best" cannot be written, for a failure of files, continues with a note.
  bool saves_are_required = false;
  // With best.load_at_end: loads the weights that were saved as "best" into the engine. Returns
  // false if they do not exist any more.
  std::function<bool(const BestSoFar& best)> load_best;
  // Called on every rank between steps: when a checkpoint is due, before a run that was told to
  // stop ends, and at the end of a run with intervals. May be empty.
  std::function<void(bool last)> checkpoint;
  // Called on every rank after every step. May be empty.
  std::function<void()> after_step;
  // Time of the system clock, in seconds, at which the run will be ended from outside. The run
  // stops early enough to save. 0: not known.
  double ends_at = 0.0;
  TrainerState start{};  // for a run that continues; its steps are the engine's
  // Another thread sets it to true to end the run, after the step under way or after the batch of
  // an evaluation.
  const std::atomic<bool>* stop = nullptr;
  // Takes the events of the engine's context after every step. Null: events are not taken.
  TraceWriter* trace = nullptr;
};

struct TrainResult {
  int64_t steps = 0;
  // Applied steps; the others were skipped, for gradients that were not finite.
  int64_t applied = 0;
  double loss = 0.0;               // of the last step
  std::optional<double> val_loss;  // of the last evaluation
  BestSoFar best;
  bool stopped = false;        // parts.stop ended it before all steps were done
  bool stopped_early = false;  // options.best.patience ended it
  bool loaded_best = false;    // the engine, and the weights saved as "final", are the best weights
  bool evaluation_stopped = false;  // parts.stop ended the evaluation after all steps
  double seconds = 0.0;             // of training steps, without evaluation and saving
  int64_t tokens = 0;
  double seconds_per_step = 0.0;  // mean without the first step, which warms up; 0 below two steps
};

class Trainer {
 public:
  // All arguments must outlive the trainer. Throws InvalidArgument for options that are out of
  // range, or that need evaluations that are not made, and ConfigError for a metric that does not
  // exist.
  Trainer(zero::Engine& engine, data::Loader& loader, ValidationSets validation,
          std::vector<std::unique_ptr<MetricsSink>> sinks, TrainerObserver* observer,
          TrainingOptions options, TrainerParts parts = {});

  // Runs the loop. Collective. A step that throws NumericsError throws on every rank and has
  // changed no weight. A skipped step whose loss is not finite throws it, too (in f16 the second in
  // a row). The weights are then saved under the name of the step before, unless they are saved
  // already or save() fails, and the error is thrown on. NumericsError too, and nothing more is
  // saved, if the last step is done and all were skipped. With
  // PrecisionConfig::allow_nonfinite_loss neither is an error.
  TrainResult run();

  TrainerState state() const;  // between steps

  // The mean loss over each validation set: the same figures in every world. Absent if parts.stop
  // ended the evaluation. Collective.
  std::optional<std::vector<SetLoss>> evaluate();

 private:
  StepMetrics train_step();
  StepMetrics train_step_or_save();
  void require_finite(const zero::StepResult& step);
  void require_progress(const StepMetrics& last) const;
  void save_final();
  void load_best();
  bool is_done() const;
  bool is_evaluation_due(int64_t samples_before) const;
  std::optional<StepMetrics> evaluate_before_first_step();
  std::optional<double> evaluate_on(const data::EvaluationSet& set, EvaluationProgress progress);
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
  void save_best();

  zero::Engine& engine_;
  data::Loader& loader_;
  const ValidationSets validation_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::set<size_t> lost_figures_;  // sinks whose last write failed
  int64_t lost_in_a_row_ = 0;      // steps up to this one that were skipped without a finite loss
  TrainerObserver* observer_;
  const TrainingOptions options_;
  const TrainerParts parts_;
  BestModel best_;
  bool best_begins_anew_ = false;  // the best of parts.start cannot be compared
  TrainResult result_;
  double first_step_seconds_ = 0.0;
  double flops_per_token_ = 0.0;
  int64_t tokens_per_step_ = 0;
  int64_t samples_ = 0;
  int64_t first_step_ = 0;        // steps that were done before this run
  int64_t saved_steps_ = 0;       // steps at the last save of weights; "best" does not count
  int64_t checkpoint_steps_ = 0;  // steps at the last checkpoint
  double checkpoint_clock_ = 0.0;
  double checkpoint_takes_ = 0.0;  // seconds of the slowest checkpoint
  double seconds_before_ = 0.0;    // seconds of steps of earlier runs
};

}  // namespace zinc::train
