#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "zero/gather_values.h"

namespace zinc::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string step_name(int64_t step) {
  std::string digits = concat(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "step-" + digits;
}

}  // namespace

Trainer::Trainer(zero::Engine& engine, Loader& loader, const EvaluationSet* evaluation,
                 std::vector<std::unique_ptr<MetricsSink>> sinks, TrainerObserver* observer,
                 TrainerOptions options)
    : engine_(engine),
      loader_(loader),
      evaluation_(evaluation),
      sinks_(std::move(sinks)),
      observer_(observer),
      options_(std::move(options)) {
  require(options_.steps > 0, "trainer: the number of steps must be positive, not ",
          options_.steps);
  require(options_.trace == nullptr || engine_.world().context().trace() != nullptr,
          "trainer: a trace writer needs a context with a trace recorder");
  require(options_.eval_every >= 0 && options_.export_every >= 0 && options_.checkpoint_every >= 0 &&
              options_.checkpoint_seconds >= 0.0,
          "trainer: intervals must not be negative");
  const TrainerState& start = options_.start;
  first_step_ = saved_steps_ = checkpoint_steps_ = engine_.state().steps;
  samples_ = start.samples;
  seconds_before_ = start.seconds;
  result_ = {.steps = first_step_,
             .loss = start.loss,
             .val_loss = start.val_loss,
             .best_val_loss = start.best_val_loss,
             .seconds = start.seconds,
             .tokens = start.tokens};
  checkpoint_clock_ = wall_time();
}

TrainerState Trainer::state() const {
  return {.tokens = result_.tokens,
          .samples = samples_,
          .seconds = result_.seconds,
          .loss = result_.loss,
          .val_loss = result_.val_loss,
          .best_val_loss = result_.best_val_loss};
}

TrainResult Trainer::run() {
  while (result_.steps < options_.steps && !result_.stopped) {
    StepMetrics metrics = train_step_or_save();
    ++result_.steps;
    if (result_.steps == first_step_ + 1 && options_.started) options_.started();
    const bool all_done = result_.steps == options_.steps;
    result_.stopped = is_told_to_stop() && !all_done;
    const auto due = [&](int64_t every) { return every > 0 && result_.steps % every == 0; };
    // A run that was told to stop has little time: it saves and goes.
    const bool evaluates =
        evaluation_ != nullptr && !result_.stopped && (all_done || due(options_.eval_every));
    // An evaluation may take long, and be ended: weights first.
    if (evaluates && all_done) save_final();
    if (evaluates) evaluate_and_keep_best(metrics);
    report(metrics);
    drain_trace();
    const bool last = all_done || result_.stopped;
    if (options_.after_step) options_.after_step();
    if (is_checkpoint_due(last)) save_checkpoint(last);
    if (last && !(evaluates && all_done)) save_final();
    if (!last && due(options_.export_every)) {
      save(step_name(result_.steps));
      saved_steps_ = result_.steps;
    }
  }
  // What other streams are still writing down belongs to the run.
  if (options_.trace != nullptr) engine_.world().context().synchronize();
  drain_trace();
  return result_;
}

StepMetrics Trainer::train_step_or_save() {
  try {
    return train_step();
  } catch (const NumericsError&) {
    try {
      if (saved_steps_ != result_.steps) save(step_name(result_.steps));
    } catch (...) {
      // The error of the step is the one that ends the run.
    }
    throw;
  }
}

void Trainer::save_final() {
  engine_.finish_update();
  save("final");
  saved_steps_ = result_.steps;
}

bool Trainer::is_told_to_stop() {
  // To save takes about as long as it took, and there are weights after it.
  constexpr double kLeast = 60.0;
  const double margin = std::max(kLeast, 3.0 * checkpoint_takes_ + 2.0 * result_.seconds_per_step);
  const bool ends = options_.ends_at > 0.0 && wall_time() + margin > options_.ends_at;
  const bool stop = options_.stop != nullptr && options_.stop->load();
  return zero::any_rank(engine_.world(), stop || ends);
}

// The same on all ranks: the clock of one decides for all.
bool Trainer::is_checkpoint_due(bool last) {
  if (!options_.checkpoint || checkpoint_steps_ == result_.steps) return false;
  const bool has_intervals = options_.checkpoint_every > 0 || options_.checkpoint_seconds > 0.0;
  if (last) return has_intervals || result_.stopped;
  if (options_.checkpoint_every > 0 && result_.steps % options_.checkpoint_every == 0) return true;
  if (options_.checkpoint_seconds == 0.0) return false;
  return zero::any_rank(engine_.world(),
                        wall_time() - checkpoint_clock_ >= options_.checkpoint_seconds);
}

void Trainer::save_checkpoint(bool last) {
  const double start = wall_time();
  options_.checkpoint(last);
  checkpoint_steps_ = result_.steps;
  checkpoint_clock_ = wall_time();
  checkpoint_takes_ = std::max(checkpoint_takes_, checkpoint_clock_ - start);
}

StepMetrics Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  const zero::SwapTraffic swapped = engine_.usage().swap;
  zero::StepResult step;
  int64_t tokens = 0;
  do {
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < engine_.config().batches_together(); ++i) {
      const nn::Batch& batch = batches.emplace_back(loader_.next());
      tokens += batch.rows() * batch.positions();
      if (flops_per_token_ == 0.0) {
        flops_per_token_ = engine_.model().flops_per_token(batch.positions());
      }
      samples_ += batch.rows() * engine_.world().size();
    }
    engine_.run_passes(batches);
    step = engine_.step();
  } while (step.outcome == zero::StepOutcome::accumulated);
  engine_.world().context().compute()->synchronize();

  StepMetrics metrics;
  metrics.step = step.step;
  metrics.loss = step.loss;
  metrics.lr = step.learning_rate;
  metrics.grad_norm = step.gradient_norm;
  metrics.loss_scale = step.loss_scale;
  metrics.skipped = step.outcome == zero::StepOutcome::skipped_overflow;
  metrics.overflow = step.overflow;
  metrics.tokens = tokens * engine_.world().size();
  metrics.seconds = seconds_since(start);
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.seconds;
  metrics.memory = engine_.world().context().allocator().report();
  metrics.breakdown = step.phases;
  const zero::SwapTraffic swap = engine_.usage().swap - swapped;
  if (swap != zero::SwapTraffic{}) metrics.swap = swap;
  metrics.samples = samples_;
  metrics.wall_time = wall_time();
  const int64_t steps_before = result_.steps - first_step_;
  if (steps_before == 0) first_step_seconds_ = metrics.seconds;
  tokens_per_step_ = metrics.tokens;
  result_.seconds += metrics.seconds;
  if (steps_before > 0) {
    result_.seconds_per_step = (result_.seconds - seconds_before_ - first_step_seconds_) /
                               static_cast<double>(steps_before);
  }
  result_.tokens += metrics.tokens;
  result_.loss = metrics.loss;
  return metrics;
}

void Trainer::evaluate_and_keep_best(StepMetrics& metrics) {
  const std::optional<double> val_loss = evaluate();
  if (!val_loss) {
    result_.stopped = result_.steps < options_.steps;
    result_.evaluation_stopped = !result_.stopped;
    return;
  }
  const bool best =
      std::isfinite(*val_loss) && (!result_.best_val_loss || *val_loss < *result_.best_val_loss);
  metrics.val_loss = val_loss;
  result_.val_loss = val_loss;
  if (best) {
    result_.best_val_loss = val_loss;
    save("best");
  }
  if (observer_ != nullptr) observer_->on_evaluation(metrics.step, *val_loss, best);
}

std::optional<double> Trainer::evaluate() {
  require(evaluation_ != nullptr, "trainer: there is no evaluation set");
  const auto start = std::chrono::steady_clock::now();
  EvaluationProgress progress{.total_batches = evaluation_->num_batches()};
  // Batch after batch in the order of their index, whoever computed them.
  zero::Evaluation total;
  for (int64_t round = 0; round < evaluation_->num_rounds(); ++round) {
    if (observer_ != nullptr) observer_->on_evaluating(progress);
    if (is_told_to_stop()) return std::nullopt;
    for (const zero::Evaluation& part :
         engine_.gather(engine_.evaluate(evaluation_->batch(round)))) {
      total += part;
    }
    progress.batches = std::min((round + 1) * engine_.world().size(), evaluation_->num_batches());
    progress.seconds = seconds_since(start);
  }
  if (observer_ != nullptr) observer_->on_evaluating(progress);
  return total.mean();
}

void Trainer::report(const StepMetrics& metrics) {
  for (const auto& sink : sinks_) sink->write(metrics);
  if (observer_ == nullptr) return;
  Progress progress;
  progress.step = metrics.step;
  progress.total_steps = options_.steps;
  progress.epoch = loader_.epoch();
  progress.loss = metrics.loss;
  progress.val_loss = metrics.val_loss;
  progress.lr = metrics.lr;
  progress.grad_norm = metrics.grad_norm;
  if (engine_.config().precision.dtype == DType::f16) progress.loss_scale = metrics.loss_scale;
  progress.skipped = metrics.skipped;
  // The first step warms caches and compiles kernels: it says nothing about speed.
  if (result_.steps > first_step_ + 1) {
    progress.seconds_per_step = result_.seconds_per_step;
    progress.tokens_per_second = static_cast<double>(tokens_per_step_) / progress.seconds_per_step;
    progress.flops_per_second = progress.tokens_per_second * flops_per_token_;
  }
  progress.swap = metrics.swap;
  progress.peak_bytes = metrics.memory.at(Tier::device).peak;
  observer_->on_step(metrics, progress);
}

void Trainer::drain_trace() {
  if (options_.trace != nullptr) options_.trace->drain(*engine_.world().context().trace());
}

void Trainer::save(const std::string& name) {
  if (options_.save) options_.save(name);
}

}  // namespace zinc::train
