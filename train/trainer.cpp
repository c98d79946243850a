#include "train/trainer.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "nn/attention/sparse_attention.h"
#include "train/train_batch.h"
#include "train/weight_histograms.h"

namespace zinc::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string step_name(int64_t step) {
  std::string digits = str(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "step-" + digits;
}

// Whether a name may be part of figures' keys and of file names.
bool is_plain(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

ValidationSets::ValidationSets(std::vector<Set> sets) : sets_(std::move(sets)) {
  for (size_t i = 0; i < sets_.size(); ++i) {
    require(is_plain(sets_[i].name), "validation: '", sets_[i].name,
            "' is no name of a set: letters, digits, '.', '_' and '-'");
    for (size_t j = 0; j < i; ++j) {
      require(sets_[j].name != sets_[i].name, "validation: there are two sets '", sets_[i].name,
              "'");
    }
  }
}

std::vector<std::string> ValidationSets::names() const {
  std::vector<std::string> names;
  for (const Set& set : sets_) names.push_back(set.name);
  return names;
}

void ObserverList::on_step(const StepMetrics& metrics, const Progress& progress) {
  for (TrainerObserver* observer : observers_) observer->on_step(metrics, progress);
}
void ObserverList::on_evaluating(const EvaluationProgress& progress) {
  for (TrainerObserver* observer : observers_) observer->on_evaluating(progress);
}
void ObserverList::on_evaluate(const EvaluationResult& result) {
  for (TrainerObserver* observer : observers_) observer->on_evaluate(result);
}
void ObserverList::on_save(const SavedFiles& files) {
  for (TrainerObserver* observer : observers_) observer->on_save(files);
}
void ObserverList::on_end(const TrainResult& result) {
  for (TrainerObserver* observer : observers_) observer->on_end(result);
}
void ObserverList::on_note(const std::string& text) {
  for (TrainerObserver* observer : observers_) observer->on_note(text);
}

Trainer::Trainer(zero::Engine& engine, data::Loader& loader, ValidationSets validation,
                 std::vector<std::unique_ptr<MetricsSink>> sinks, TrainerObserver* observer,
                 TrainingOptions options, TrainerParts parts)
    : engine_(engine),
      loader_(loader),
      validation_(std::move(validation)),
      sinks_(std::move(sinks)),
      observer_(observer),
      options_(std::move(options)),
      parts_(std::move(parts)),
      best_(options_.best, validation_.names()) {
  require(options_.steps > 0, "trainer: the number of steps must be positive, not ",
          options_.steps);
  require(parts_.trace == nullptr || engine_.world().context().trace() != nullptr,
          "trainer: a trace writer needs a context with a trace recorder");
  require(options_.eval_every >= 0 && options_.eval_delay >= 0.0 && options_.export_every >= 0 &&
              parts_.checkpoint_every >= 0 && parts_.checkpoint_seconds >= 0.0 &&
              options_.sample_every >= 0 && options_.histogram_every >= 0,
          "trainer: intervals must not be negative");
  const bool has_intervals = options_.eval_every > 0 || options_.eval_each_epoch;
  require(!validation_.empty() || (!has_intervals && !options_.eval_on_start),
          "trainer: evaluations need a validation set");
  require((has_intervals && !validation_.empty()) ||
              (!options_.best.load_at_end && options_.best.patience == 0),
          "trainer: the best model, and patience with it, need evaluations on the way: eval_every "
          "or eval_each_epoch");
  const TrainerState& start = parts_.start;
  best_begins_anew_ = !best_.go_on_from(
      start.best, validation_.empty() ? start.best.samples
                                      : validation_.sets()[best_.set()].batches->num_samples());
  first_step_ = saved_steps_ = checkpoint_steps_ = engine_.state().steps;
  samples_ = start.samples;
  seconds_before_ = start.seconds;
  result_ = {.steps = first_step_,
             .loss = start.loss,
             .val_loss = start.val_loss,
             .best = best_.so_far(),
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
          .best = best_.so_far()};
}

bool Trainer::is_done() const {
  return result_.steps >= options_.steps || result_.stopped || best_.is_time_to_stop();
}

// True at the end of an epoch that was under way after samples_before, or every eval_every steps,
// unless eval_delay is still to pass.
bool Trainer::is_evaluation_due(int64_t samples_before) const {
  const auto begins_by = [&](int64_t now) {
    return static_cast<double>(now) >= options_.eval_delay;
  };
  const int64_t every = options_.eval_every;
  if (every > 0 && result_.steps % every == 0 && begins_by(result_.steps)) return true;
  const int64_t epoch = loader_.samples_per_epoch();
  const int64_t epochs = loader_.state().samples / epoch;
  return options_.eval_each_epoch && epochs > samples_before / epoch && begins_by(epochs);
}

TrainResult Trainer::run() {
  if (best_begins_anew_ && observer_ != nullptr) {
    const BestSoFar& before = parts_.start.best;
    const BestSoFar& now = best_.so_far();
    const auto terms = [](const BestSoFar& best) {
      return str("the ", best.greater_is_better ? "greatest " : "smallest ", best.metric, " over ",
                 best.samples, " samples");
    };
    observer_->on_note(str("the best model is found anew: it was that of ", terms(before),
                           ", and is now that of ", terms(now)));
  }
  const std::optional<StepMetrics> before = evaluate_before_first_step();
  write_samples_of_before();
  while (!is_done()) {
    const int64_t samples_before = loader_.state().samples;
    StepMetrics metrics = train_step_or_save();
    ++result_.steps;
    if (result_.steps == first_step_ + 1 && parts_.started) parts_.started();
    if (result_.steps == 1 && before) report(*before);
    const bool all_done = result_.steps == options_.steps;
    if (all_done) require_progress(metrics);
    result_.stopped = is_told_to_stop() && !all_done;
    // A run that was told to stop has little time: it saves and goes.
    const bool evaluates =
        !validation_.empty() && !result_.stopped && (all_done || is_evaluation_due(samples_before));
    // An evaluation may take long, and be ended: weights first.
    if (evaluates && all_done) save_final();
    if (evaluates) evaluate_and_keep_best(metrics);
    report(metrics);
    const bool last = is_done();
    const auto is_due = [&](int64_t every) { return every > 0 && result_.steps % every == 0; };
    if (!last && is_due(options_.sample_every)) write_samples();
    if (is_due(options_.histogram_every)) write_histograms();
    drain_trace();
    if (parts_.after_step) parts_.after_step();
    if (is_checkpoint_due(last)) save_checkpoint(last);
    if (last && saved_steps_ != result_.steps) save_final();
    if (!last && is_due(options_.export_every)) {
      save(step_name(result_.steps));
      saved_steps_ = result_.steps;
    }
  }
  result_.applied = engine_.state().applied;
  result_.stopped_early = result_.steps < options_.steps && best_.is_time_to_stop();
  // A run that goes on from its own end may have been killed before its weights were saved.
  if (result_.steps == first_step_) {
    if (parts_.started) parts_.started();
    save_final();
  }
  const bool told_to_stop = result_.stopped || result_.evaluation_stopped;
  if (options_.best.load_at_end && !told_to_stop) load_best();
  // Events that other streams are still writing belong to the run.
  if (parts_.trace != nullptr) engine_.world().context().synchronize();
  drain_trace();
  if (!told_to_stop) write_samples();
  if (observer_ != nullptr) observer_->on_end(result_);
  return result_;
}

void Trainer::load_best() {
  const BestSoFar& best = best_.so_far();
  if (!best.value) return;
  if (best.step != result_.steps) {
    if (!parts_.load_best || !parts_.load_best(best)) {
      if (observer_ != nullptr) {
        observer_->on_note(str("the best weights, those of step ", best.step,
                               ", are not there any more; the last ones stay"));
      }
      return;
    }
    save_final();
  }
  result_.loaded_best = true;
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

// One batch may be too much for f16, and its step is skipped as any overflow is. Two in a row are
// no matter of the batch, and the loss scale does not cure a loss.
void Trainer::require_finite(const zero::StepResult& step) {
  const zero::PrecisionConfig& precision = engine_.config().precision;
  const bool is_lost =
      step.outcome == zero::StepOutcome::skipped_overflow && !std::isfinite(step.loss);
  lost_in_a_row_ = is_lost ? lost_in_a_row_ + 1 : 0;
  const int64_t most = precision.dtype == DType::f16 ? 1 : 0;
  if (lost_in_a_row_ <= most || precision.allow_nonfinite_loss) return;
  throw NumericsError(
      str("step ", step.step, ": the loss is ", std::isnan(step.loss) ? "nan" : str(step.loss),
          "; no weight was changed by this step. Lower the learning rate, or check "
          "data and weights for NaN; --allow-nan (allow_nonfinite_loss) goes on all "
          "the same"));
}

void Trainer::require_progress(const StepMetrics& last) const {
  const zero::PrecisionConfig& precision = engine_.config().precision;
  if (engine_.state().applied > 0 || precision.allow_nonfinite_loss) return;
  const bool scales = precision.dtype == DType::f16;
  const std::string cure =
      !scales ? "lower the learning rate, or check data and weights for NaN"
      : precision.loss_scale.dynamic
          ? str("the loss scale fell to ", last.loss_scale,
                "; lower fp16.initial_scale_power, or take more steps")
          : str("the static loss scale of ", last.loss_scale,
                " is too large; lower fp16.loss_scale, or leave it out for a dynamic one");
  throw NumericsError(str("nothing was learned: all ", result_.steps,
                          " steps were skipped, because the gradient was not finite (last in ",
                          last.overflow, "); ", cure));
}

void Trainer::save_final() {
  engine_.finish_update();
  save("final");
  saved_steps_ = result_.steps;
}

bool Trainer::is_told_to_stop() {
  // Saving takes about as long as the slowest checkpoint, and the weights follow it.
  constexpr double kLeast = 60.0;
  const double margin = std::max(kLeast, 3.0 * checkpoint_takes_ + 2.0 * result_.seconds_per_step);
  const bool ends = parts_.ends_at > 0.0 && wall_time() + margin > parts_.ends_at;
  const bool stop = parts_.stop != nullptr && parts_.stop->load();
  return comm::any_rank(engine_.world(), stop || ends);
}

// The same on all ranks: the clock of one decides for all.
bool Trainer::is_checkpoint_due(bool last) {
  if (!parts_.checkpoint || checkpoint_steps_ == result_.steps) return false;
  const bool has_intervals = parts_.checkpoint_every > 0 || parts_.checkpoint_seconds > 0.0;
  if (last) return has_intervals || result_.stopped;
  if (parts_.checkpoint_every > 0 && result_.steps % parts_.checkpoint_every == 0) return true;
  if (parts_.checkpoint_seconds == 0.0) return false;
  return comm::any_rank(engine_.world(),
                        wall_time() - checkpoint_clock_ >= parts_.checkpoint_seconds);
}

void Trainer::save_checkpoint(bool last) {
  const double start = wall_time();
  parts_.checkpoint(last);
  checkpoint_steps_ = result_.steps;
  checkpoint_clock_ = wall_time();
  checkpoint_takes_ = std::max(checkpoint_takes_, checkpoint_clock_ - start);
}

StepMetrics Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  const offload::SwapTraffic swapped = engine_.usage().swap;
  int64_t tokens = 0;
  const zero::StepResult step = train_batch(engine_, loader_, [&](const nn::Batch& batch) {
    tokens += batch.rows() * batch.positions();
    if (flops_per_token_ == 0.0) {
      nn::Model& model = engine_.model();
      flops_per_token_ = model.flops_per_token(batch.positions()) -
                         nn::hidden_flops_per_token(model, batch.positions());
    }
    samples_ += batch.rows() * engine_.world().data().size();
  });
  engine_.world().context().compute()->synchronize();
  require_finite(step);

  StepMetrics metrics;
  metrics.step = step.step;
  metrics.loss = step.loss;
  metrics.lr = step.learning_rate;
  metrics.grad_norm = step.gradient_norm;
  metrics.loss_scale = step.loss_scale;
  metrics.skipped = step.outcome == zero::StepOutcome::skipped_overflow;
  metrics.overflow = step.overflow;
  metrics.tokens = tokens * engine_.world().data().size();
  metrics.seconds = seconds_since(start);
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.seconds;
  metrics.memory = engine_.world().context().allocator().report();
  metrics.breakdown = step.phases;
  const offload::SwapTraffic swap = engine_.usage().swap - swapped;
  if (swap != offload::SwapTraffic{}) metrics.swap = swap;
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

// The figures are told now, and kept until the first step is done: a run without a step leaves no
// files.
std::optional<StepMetrics> Trainer::evaluate_before_first_step() {
  if (!options_.eval_on_start || result_.steps > 0) return std::nullopt;
  std::optional<std::vector<SetLoss>> losses = evaluate();
  if (!losses) return std::nullopt;  // the first step finds out, and is the last
  StepMetrics metrics;
  metrics.val_loss = (*losses)[best_.set()].loss;
  metrics.validation = std::move(*losses);
  metrics.wall_time = wall_time();
  tell_of(metrics, false);
  return metrics;
}

void Trainer::evaluate_and_keep_best(StepMetrics& metrics) {
  std::optional<std::vector<SetLoss>> losses = evaluate();
  if (!losses) {
    result_.stopped = result_.steps < options_.steps;
    result_.evaluation_stopped = !result_.stopped;
    return;
  }
  metrics.validation = std::move(*losses);
  metrics.val_loss = result_.val_loss = metrics.validation[best_.set()].loss;
  const bool best = best_.take(metrics.step, *metrics.val_loss);
  result_.best = best_.so_far();
  if (best) save_best();
  tell_of(metrics, best);
}

// Saves the best weights. If that fails because of files, the run continues, as without a
// checkpoint: the best figure stays that of this step, and its weights do not exist.
void Trainer::save_best() {
  try {
    save("best");
  } catch (const CommError&) {  // the others may not get here
    throw;
  } catch (const std::exception& error) {
    const bool is_files = dynamic_cast<const IoError*>(&error) != nullptr ||
                          dynamic_cast<const PeerFailed*>(&error) != nullptr;
    if (comm::any_rank(engine_.world(), !is_files) || parts_.saves_are_required) throw;
    if (observer_ == nullptr) return;
    observer_->on_note(str("the best weights so far, of step ", result_.steps,
                           ", are not saved: ", error.what(), "; the run goes on"));
  }
}

void Trainer::tell_of(const StepMetrics& metrics, bool best) {
  if (observer_ == nullptr) return;
  observer_->on_evaluate({.step = metrics.step,
                          .sets = metrics.validation,
                          .val_loss = *metrics.val_loss,
                          .metric = best_.options().metric,
                          .value = best_.value_of(*metrics.val_loss),
                          .best = best});
}

std::optional<std::vector<SetLoss>> Trainer::evaluate() {
  require(!validation_.empty(), "trainer: there is no evaluation set");
  std::vector<SetLoss> losses;
  for (const ValidationSets::Set& set : validation_.sets()) {
    const std::optional<double> loss =
        evaluate_on(*set.batches, {.set = set.name, .total_batches = set.batches->num_batches()});
    if (!loss) return std::nullopt;
    losses.push_back({set.name, *loss});
  }
  return losses;
}

std::optional<double> Trainer::evaluate_on(const data::EvaluationSet& set,
                                           EvaluationProgress progress) {
  const auto start = std::chrono::steady_clock::now();
  // Losses are added in the order of the batches' index, whichever rank computed them.
  zero::Evaluation total;
  for (int64_t round = 0; round < set.num_rounds(); ++round) {
    if (observer_ != nullptr) observer_->on_evaluating(progress);
    if (is_told_to_stop()) return std::nullopt;
    for (const zero::Evaluation& part : gather(engine_, engine_.evaluate(set.batch(round)))) {
      total += part;
    }
    progress.batches = std::min((round + 1) * engine_.world().data().size(), set.num_batches());
    progress.seconds = seconds_since(start);
  }
  if (observer_ != nullptr) observer_->on_evaluating(progress);
  return total.mean();
}

void Trainer::report(const StepMetrics& metrics) {
  write_beside([&](MetricsSink& sink) { sink.write(metrics); });
  if (observer_ == nullptr || metrics.step == 0) return;
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

FigureTime Trainer::now() const {
  return {.step = result_.steps, .samples = samples_, .wall_time = wall_time()};
}

// A full disk does not end the run. A file that cannot be written is reported once, until it can be
// written again.
template <class Write>
void Trainer::write_beside(const Write& write) {
  for (size_t i = 0; i < sinks_.size(); ++i) {
    try {
      write(*sinks_[i]);
      lost_figures_.erase(i);
    } catch (const IoError& error) {
      if (!lost_figures_.insert(i).second || observer_ == nullptr) continue;
      observer_->on_note(str("figures are lost: ", error.what(), "; the run goes on without them"));
    }
  }
}

void Trainer::write_samples() {
  if (!parts_.sample) return;
  const std::vector<SampleText> samples = parts_.sample(engine_);
  write_beside([&](MetricsSink& sink) { sink.write_samples(now(), samples); });
}

// Writes samples that the run before owes: a signal that ended its sampling ended the run, too,
// with a checkpoint of the same step.
void Trainer::write_samples_of_before() {
  const int64_t every = options_.sample_every;
  if (!parts_.sample || first_step_ == 0 || every == 0 || first_step_ % every != 0) return;
  const bool lacks = std::any_of(sinks_.begin(), sinks_.end(), [&](const auto& sink) {
    return sink->lacks_samples_of(first_step_);
  });
  if (comm::any_rank(engine_.world(), lacks) && !is_done()) write_samples();
}

void Trainer::write_histograms() {
  const std::vector<Histogram> histograms = weight_histograms(engine_);
  write_beside([&](MetricsSink& sink) { sink.write_histograms(now(), histograms); });
}

void Trainer::drain_trace() {
  if (parts_.trace != nullptr) parts_.trace->drain(*engine_.world().context().trace());
}

void Trainer::save(const std::string& name) {
  if (parts_.save) parts_.save(name);
}

}  // namespace zinc::train
