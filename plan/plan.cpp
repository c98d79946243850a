#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "comm/world.h"
#include "core/error.h"
#include "core/work_log.h"
#include "hub/adapter.h"
#include "hub/family.h"
#include "hub/model.h"
#include "nn/attention/sparse_attention.h"
#include "plan/phantom_run.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/trainer.h"
#include "train/weights/save_model.h"

namespace zinc::plan {
namespace {

// Where gradients travel as signs, the plan's run has two steps before that, whatever the
// configuration says: Note [Sums as signs] in zero/group/sign_sums.h.
constexpr int64_t kStepsBeforeSigns = 2;

// The step of the run that is looked at: nothing is new in it.
int64_t measured_step(const train::Config& config) {
  return config.engine.sends_signs() ? kStepsBeforeSigns + 2 : 2;
}

// Steps of the run that is a plan. One more than the measured one shows an update that is under way
// after a save. Recorded passes take nothing more, and have no such update.
int64_t steps_of(const train::Config& config) {
  return measured_step(config) + (config.engine.cuda_graph ? 0 : 1);
}

constexpr std::string_view kStepMark = "step";
constexpr std::string_view kPassMark = "pass";

int64_t bytes_sent(const comm::PhantomLedger& ledger) {
  int64_t bytes = 0;
  for (const auto& [name, traffic] : ledger) bytes += traffic.bytes_sent;
  return bytes;
}

// The beginning of a micro-batch.
struct MicroBatchStart {
  size_t entry = 0;           // index in the log
  int64_t bytes_sent = 0;     // in the step until then
  offload::SwapTraffic swap;  // in the run until then
};

// Notes the engine's activity when memory is fullest, and the traffic of each step, from the end of
// one step to the end of the next.
class Watch final : public train::TrainerObserver {
 public:
  Watch(comm::PhantomLedger& ledger, WorkLog& log, const PlanOptions& options, int64_t measured)
      : ledger_(ledger), log_(log), options_(options), measured_(measured) {}

  // Null: the program is not wanted.
  void follow(ProgramWatch* program) { program_ = program; }

  void on_peak(Tier tier, const MemoryReport& report) {
    if (tier != Tier::device) return;
    plan_.at_peak = report;
    plan_.peak_moment = engine_ == nullptr ? "construction" : engine_->moment();
    const int64_t peak = report.at(Tier::device).peak;
    const std::optional<int64_t>& most = options_.hopeless_bytes;
    if (most && peak > *most) throw OutOfMemory("plan: it takes more than is asked", peak, *most);
  }
  void follow(zero::Engine& engine) {
    engine_ = &engine;
    context_ = &engine.world().context();
    ledger_.clear();
  }
  // Called ahead of every micro-batch, with the number of its samples.
  void on_sample(int64_t micro_batch) {
    if (steps_ + 1 != measured_) return;
    const MemoryReport report = context_->allocator().report();
    if (options_.is_enough && options_.is_enough(report)) ends_ = true;
    if (samples_ % micro_batch == 0) {
      starts_.push_back({.entry = log_.entries().size(),
                         .bytes_sent = bytes_sent(ledger_),
                         .swap = engine_->usage().swap});
      if (!options_.program) log_.mark(kPassMark);  // the program has its own marks
    }
    const auto live = [&](Label label) { return report.at(Tier::device, label).live; };
    StandingBytes& standing = plan_.standing;
    standing.weights = live(Label::parameters);
    standing.states = live(Label::optimizer);
    if (samples_++ >= micro_batch) standing.gradients = live(Label::gradients);
  }
  void on_step(const train::StepMetrics& metrics, const train::Progress&) override {
    steps_ = metrics.step;
    if (metrics.step + 1 >= measured_) log_.mark(kStepMark);
    if (metrics.step < measured_) {
      step_before_ = std::exchange(ledger_, {});
      if (metrics.step == kStepsBeforeSigns) {
        plan_.bytes_sent_before_signs = bytes_sent(step_before_);
      }
    }
    if (metrics.step + 1 == measured_) {
      swapped_ = engine_->usage().swap;
      if (program_ != nullptr) program_->begin_timed();
    }
    if (metrics.step == measured_) {
      plan_.step = ledger_;
      const MemoryReport report = context_->allocator().report();
      plan_.standing.activations = report.at(Tier::device, Label::activations).peak;
      plan_.swap = engine_->usage().swap - swapped_;
      log_.stop();
      if (program_ != nullptr) program_->freeze();
    }
    tokens_per_step_ = metrics.tokens;
  }

  RankPlan& plan() { return plan_; }
  int64_t tokens_per_step() const { return tokens_per_step_; }
  // The plan ends with the measured step.
  const std::atomic<bool>& ends() const { return ends_; }
  // The beginnings of the measured step's micro-batches.
  const std::vector<MicroBatchStart>& starts() const { return starts_; }

 private:
  comm::PhantomLedger& ledger_;
  WorkLog& log_;
  const PlanOptions& options_;
  const int64_t measured_;  // measured_step()
  const zero::Engine* engine_ = nullptr;
  Context* context_ = nullptr;
  ProgramWatch* program_ = nullptr;
  comm::PhantomLedger step_before_;
  offload::SwapTraffic swapped_;  // until the end of the step before the measured one
  RankPlan plan_;
  int64_t tokens_per_step_ = 0;
  int64_t steps_ = 0;
  int64_t samples_ = 0;  // samples of the measured step that were read
  std::vector<MicroBatchStart> starts_;
  std::atomic<bool> ends_ = false;
};

// Counts the FLOP and the copies of the second of the log's two steps.
void count_step(const WorkLog& log, int64_t* flops, CopyTraffic& copies) {
  int64_t marks = 0;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.action == WorkLog::Action::mark && entry.label == kStepMark) ++marks;
    if (marks != 1) continue;
    if (flops != nullptr) *flops += entry.cost.flops;
    if (entry.cost.place == WorkPlace::to_device) copies.to_device += entry.cost.bytes_written;
    if (entry.cost.place == WorkPlace::to_host) copies.to_host += entry.cost.bytes_written;
  }
  bug_check(marks == 2, "plan: ", marks, " steps were logged, not 2");
}

// The kernels of the second of the log's two steps. `speed` may be null.
std::vector<KernelFigures> kernels_of(const WorkLog& log, const RankSpeed* speed) {
  std::map<std::tuple<std::string_view, WorkKind, WorkPlace>, KernelFigures> found;
  int64_t marks = 0;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.action == WorkLog::Action::mark && entry.label == kStepMark) ++marks;
    const WorkCost& cost = entry.cost;
    if (marks != 1 || entry.action != WorkLog::Action::work || cost.kind == WorkKind::collective) {
      continue;
    }
    KernelFigures& kernel = found[{entry.label, cost.kind, cost.place}];
    ++kernel.launches;
    kernel.bytes_read += cost.bytes_read;
    kernel.bytes_written += cost.bytes_written;
    kernel.flops += cost.flops;
    if (speed == nullptr) continue;
    const int threads =
        entry.stream == static_cast<int>(StreamRole::compute) ? speed->threads() : 1;
    kernel.seconds = kernel.seconds.value_or(0.0) + speed->seconds(entry.label, cost, threads);
  }
  std::vector<KernelFigures> kernels;
  for (auto& [key, kernel] : found) {
    std::tie(kernel.name, kernel.kind, kernel.place) = key;
    kernels.push_back(std::move(kernel));
  }
  std::ranges::stable_sort(kernels, std::ranges::greater(), [](const KernelFigures& kernel) {
    return std::pair(kernel.seconds.value_or(0.0), kernel.bytes_read + kernel.bytes_written);
  });
  return kernels;
}

bool is_offloaded(const WorkLog& log, const RankSpeed& speed) {
  return std::ranges::any_of(log.entries(), [&](const WorkLog::Entry& entry) {
    return entry.action == WorkLog::Action::work && speed.is_offload(entry.cost);
  });
}

std::vector<PlayedMoment> moments_of(std::string_view label,
                                     const std::vector<PlayedMoment>& moments) {
  std::vector<PlayedMoment> found;
  std::ranges::copy_if(moments, std::back_inserter(found),
                       [&](const PlayedMoment& moment) { return moment.label == label; });
  return found;
}

std::vector<PlayedMoment> steps_in(const std::vector<PlayedMoment>& moments) {
  return moments_of(kStepMark, moments);
}

// Empty where the plan was given no hardware that times its step; says why in `no_time`.
std::optional<RankSpeed> speed_of(const WorkLog& log, const PlanOptions& options,
                                  std::string& no_time) {
  if (!options.hardware) return std::nullopt;
  const Hardware& hardware = *options.hardware;
  RankSpeed speed(hardware, options.num_threads, options.ranks_per_host);
  if (hardware.host || !options.device.is_cuda() || !is_offloaded(log, speed)) return speed;
  no_time = str("the hardware file of '", hardware.name,
                "' has no \"host\": how fast a GPU's host and the way there are; `zinc bench "
                "ceilings --device cuda --json FILE` measures it");
  return std::nullopt;
}

// The second of the log's two steps, from `moments`, with its swap traffic.
StepTime time_of(const WorkLog& log, const std::vector<PlayedMoment>& moments,
                 const RankSpeed& speed, const PlanOptions& options,
                 const offload::SwapTraffic& swap) {
  const std::vector<PlayedMoment> steps = steps_in(moments);
  StepTime time = between(steps[0], steps[1]);
  if (is_offloaded(log, speed)) {
    const std::vector<PlayedMoment> without = steps_in(play(log, speed, true));
    time.exposed_offload_seconds = time.step_seconds - between(without[0], without[1]).step_seconds;
  }
  if (swap != offload::SwapTraffic{} && options.hardware->disk) {
    time.swap_seconds = options.ranks_per_host *
                        options.hardware->disk->seconds(swap.bytes_read, swap.bytes_written);
    time.exposed_swap_seconds = std::max(0.0, *time.swap_seconds - time.step_seconds);
    time.step_seconds += time.exposed_swap_seconds;
  }
  return time;
}

// Times the same step. Returns the data for drawing its program, if that is wanted.
TimedStep time_step(const WorkLog& log, const RankSpeed& speed, const PlanOptions& options,
                    RankPlan& rank) {
  TimedStep timed;
  const std::vector<PlayedMoment> moments =
      play(log, speed, false, options.program ? &timed.spans : nullptr);
  rank.time = time_of(log, moments, speed, options, rank.swap);
  const std::vector<PlayedMoment> passes = moments_of(kPassMark, moments);
  if (passes.size() > 1) {
    rank.pass_seconds = passes[1].reached - passes[0].reached;
    rank.pass_flops = passes[1].flops - passes[0].flops;
  }
  const double begin = steps_in(moments).front().seconds;
  for (const PlayedMoment& moment : moments) {
    if (moment.label == ProgramWatch::kMark) timed.places.push_back(moment.reached - begin);
  }
  std::erase_if(timed.spans, [&](const PlayedSpan& span) { return span.end <= begin; });
  for (PlayedSpan& span : timed.spans) {
    span.begin = std::max(0.0, span.begin - begin);
    span.end -= begin;
    if (span.marks > 0) --span.marks;  // the end of the step before was one
  }
  return timed;
}

// The same step without one of its middle micro-batches: the last but one does the same work as the
// one before it. Empty if it does not.
std::optional<StepFigures> shorter_step(const WorkLog& log, const std::optional<RankSpeed>& speed,
                                        const PlanOptions& options,
                                        const std::vector<MicroBatchStart>& starts,
                                        const RankPlan& rank) {
  if (starts.size() < 4) return std::nullopt;
  const MicroBatchStart& first = starts[starts.size() - 3];
  const MicroBatchStart& second = starts[starts.size() - 2];
  const MicroBatchStart& end = starts.back();
  const std::optional<WorkLog> kept = without_repeat(log, first.entry, second.entry, end.entry);
  if (!kept) return std::nullopt;
  StepFigures figures;
  figures.bytes_sent = bytes_sent(rank.step) - (end.bytes_sent - second.bytes_sent);
  figures.swap = rank.swap - (end.swap - second.swap);
  count_step(*kept, nullptr, figures.copies);
  if (speed) figures.time = time_of(*kept, play(*kept, *speed), *speed, options, figures.swap);
  return figures;
}

// The steps before, the measured step, a save that may find its update under way still, the step
// after that, and the end of a run.
train::TrainingOptions training_options(const PlanOptions& options, int64_t steps) {
  return {.steps = steps, .export_every = options.save ? 2 : 0};
}

train::TrainerParts trainer_parts(const PlanOptions& options, const train::Config& config,
                                  const hub::TuningOptions& tuning, zero::Engine& engine,
                                  train::StateSnapshot& snapshot, const std::atomic<bool>& ends) {
  train::TrainerParts trainer{.stop = &ends};
  if (options.save) {
    trainer.save = [&engine, &snapshot, &ends, beside = config.saves_beside(),
                    without_frozen = !options.save_frozen && config.mesh.tensor == 1,
                    adapters = tuning.has_adapters()](const std::string&) {
      if (ends) return;
      if (beside) snapshot.take(engine, without_frozen);
      // Saved weights, and the last checkpoint, for which training waits: a signal may ask for it.
      engine.read_own(zero::Engine::Own::weights_and_states, {});
      if (adapters) train::visit_adapter(engine, {});
    };
  }
  return trainer;
}

void measure(std::vector<PlannedRewrite>& rewrites, const hub::ModelConfigFile& model,
             const train::Config& config, const PlanOptions& options);

Plan plan_in(comm::World& world, nn::Model& model, const hub::ModelConfigFile& model_config,
             const train::Config& config, const PlanOptions& options, Watch& watch, WorkLog& log) {
  const int64_t steps = steps_of(config);
  ProgramWatch program(world.context(), log);
  zero::EngineOptions engine_options{.total_steps = steps};
  engine_options.without_rewrites = options.without_rewrites;
  if (options.program) {
    watch.follow(&program);
    engine_options.on_place = [&program](const zero::Phase& phase, size_t place) {
      program.visit(phase, place);
    };
  }
  zero::EngineConfig as_trained = config.engine;  // as in Run::make_engine()
  if (as_trained.batch.sequence == 0) as_trained.batch.sequence = options.seq;
  as_trained.optimizer.one_bit.freeze_step = kStepsBeforeSigns;
  zero::Engine engine(model, as_trained, world, std::move(engine_options));
  watch.follow(engine);

  const int64_t micro_batch = config.engine.batch.micro_batch;
  const int64_t length = options.longest > 0 ? options.longest : options.seq;
  const int64_t pad_multiple = options.longest > 0 ? config.pad_multiple() : 0;
  const PhantomData data(micro_batch * world.data().size(), length,
                         batch_fields(options, model_config.config),
                         [&] { watch.on_sample(micro_batch); });
  data::Loader loader(data, {.micro_batch = micro_batch,
                             .seq_len = options.seq,
                             .pad_multiple = pad_multiple,
                             .seed = config.seed,
                             .rank = world.data().rank(),
                             .world = world.data().size(),
                             .prefetch_batches = 0});
  const data::EvaluationSet evaluation(data, {.batch = micro_batch,
                                              .seq_len = options.seq,
                                              .pad_multiple = pad_multiple,
                                              .rank = world.data().rank(),
                                              .world = world.data().size()});
  Block buffers;  // for checkpoints
  if (options.save) buffers = train::CheckpointSaver::take_buffers(world.context());
  train::StateSnapshot snapshot;
  train::Trainer trainer(
      engine, loader, options.evaluate ? &evaluation : nullptr, {}, &watch,
      training_options(options, steps),
      trainer_parts(options, config, model_config.tuning, engine, snapshot, watch.ends()));
  trainer.run();

  Plan plan{.options = options,
            .fullest = std::move(watch.plan()),
            .num_parameters = model.num_parameters(),
            .tokens_per_step = watch.tokens_per_step(),
            .program_hash = engine.step_program().hash};
  plan.fullest.rank = options.rank.value_or(0);
  plan.fullest.peaks = world.context().allocator().report();
  plan.flops_per_step =
      (model.flops_per_token(length) - nn::hidden_flops_per_token(model, length)) *
      static_cast<double>(plan.tokens_per_step) / options.world;
  plan.fullest.is_whole = !watch.ends();
  count_step(log, &plan.fullest.kernel_flops, plan.fullest.copies);
  const std::optional<RankSpeed> speed = speed_of(log, options, plan.fullest.no_time);
  plan.fullest.kernels = kernels_of(log, speed ? &*speed : nullptr);
  TimedStep timed;
  if (speed) timed = time_step(log, *speed, options, plan.fullest);
  if (config.engine.batches_together() == 1)
    plan.fullest.shorter = shorter_step(log, speed, options, watch.starts(), plan.fullest);
  if (options.program) {
    plan.program = program.read(engine.step_program(), timed);
    measure(plan.program->rewrites, model_config, config, options);
  }
  return plan;
}

Plan plan_as_configured(const hub::ModelConfigFile& model_config, const train::Config& config,
                        const PlanOptions& options) {
  const auto ledger = std::make_shared<comm::PhantomLedger>();
  WorkLog log;
  Watch watch(*ledger, log, options, measured_step(config));
  comm::World world = phantom_world(
      options, config, ledger, log,
      [&watch](Tier tier, const MemoryReport& report) { watch.on_peak(tier, report); });
  const std::unique_ptr<nn::Model> model = hub::make_model(model_config);
  try {
    return plan_in(world, *model, model_config, config, options, watch, log);
  } catch (const OutOfMemory&) {
    if (!options.hopeless_bytes) throw;
  }
  Plan plan{.options = options,
            .fullest = std::move(watch.plan()),
            .num_parameters = model->num_parameters()};
  plan.fullest.rank = options.rank.value_or(0);
  plan.fullest.peaks = world.context().allocator().report();
  plan.fullest.is_whole = plan.fullest.has_step = false;
  return plan;
}

// Measures the cost of each rewrite of the plan's program, by plans without the rewrites that come
// after it.
void measure(std::vector<PlannedRewrite>& rewrites, const hub::ModelConfigFile& model,
             const train::Config& config, const PlanOptions& options) {
  // A program cannot do without these.
  const auto is_needed = [](const std::string& name) {
    return name != "update_early" && name != "update_late" && name != "keep_through_step" &&
           name != "keep_resident" && name != "prefetch" && name != "read_parameters";
  };
  for (size_t i = 0; i < rewrites.size(); ++i) {
    PlanOptions until = options;
    until.program = false;
    for (size_t later = i + 1; later < rewrites.size(); ++later) {
      if (!is_needed(rewrites[later].name)) until.without_rewrites.push_back(rewrites[later].name);
    }
    const Plan plan = plan_as_configured(model, config, until);
    rewrites[i].device_peak = plan.fullest.device_peak();
    if (plan.fullest.time) rewrites[i].step_seconds = plan.fullest.time->step_seconds;
  }
}

// The reason against the update on the device, whose plan `device` is; empty: none.
std::string why_not_on_device(const Plan& device) {
  const int64_t room = device.options.device_room;
  const int64_t bytes = device.fullest.peaks.reserved[static_cast<size_t>(Tier::device)].peak;
  if (room == 0 || bytes <= room) return "";
  return fmt::format("because its buffers do not fit on the device: {} of {} bytes", bytes, room);
}

Plan plan_of_choice(const hub::ModelConfigFile& model, const train::Config& config,
                    const PlanOptions& options) {
  train::Config way = config;
  way.engine.offload_step = zero::OffloadStep::host;
  Plan host = plan_as_configured(model, way, options);
  OffloadChoice choice;
  if (!host.fullest.time) {
    choice.why = options.hardware ? str("because ", host.fullest.no_time)
                                  : "because there is no hardware file to choose by";
    host.offload_choice = choice;
    return host;
  }
  choice.host_seconds = host.fullest.time->step_seconds;
  way.engine.offload_step = zero::OffloadStep::device;
  try {
    Plan device = plan_as_configured(model, way, options);
    choice.device_seconds = device.fullest.time->step_seconds;
    const double ms[] = {1e3 * *choice.host_seconds, 1e3 * *choice.device_seconds};
    choice.why = why_not_on_device(device);
    if (choice.why.empty() && ms[1] < ms[0]) {
      choice.step = zero::OffloadStep::device;
      choice.why = fmt::format("{:.3f} ms a step where the host takes {:.3f} ms", ms[1], ms[0]);
      device.offload_choice = choice;
      return device;
    }
    if (choice.why.empty()) {
      choice.why = fmt::format("{:.3f} ms a step where the device takes {:.3f} ms", ms[0], ms[1]);
    }
  } catch (const OutOfMemory&) {
    choice.why = "because the buffers of the device's way are beyond the limit of its memory";
  }
  host.offload_choice = choice;
  return host;
}

Plan plan_of_rank(const hub::ModelConfigFile& model, const train::Config& config,
                  const PlanOptions& options) {
  if (!leaves_offload_step_open(config.engine)) return plan_as_configured(model, config, options);
  return plan_of_choice(model, config, options);
}

void play_pipeline(Plan& plan, const train::Config& config) {
  double slowest = 0.0;
  for (const RankPlan& rank : plan.pipe) {
    if (!rank.time) return;
    slowest = std::max(slowest, rank.time->step_seconds);
  }
  wait_in_pipeline(*plan.fullest.time, slowest, config.pipeline_shape());
}

Plan plan_of_pipeline(const hub::ModelConfigFile& model, const train::Config& config,
                      const PlanOptions& options) {
  PlanOptions one = options;
  one.program = false;
  train::Config chosen = config;
  std::optional<Plan> fullest;
  std::vector<RankPlan> ranks;
  std::optional<OffloadChoice> choice;
  const auto reserved = [](const RankPlan& rank) {
    return rank.peaks.reserved[static_cast<size_t>(Tier::device)].peak;
  };
  std::vector<int> places = options.pipe_ranks;
  if (places.empty()) {
    places.resize(static_cast<size_t>(config.mesh.pipe));
    std::iota(places.begin(), places.end(), 0);
  }
  for (const int pipe : places) {
    one.rank = pipe * config.mesh.tensor;
    Plan plan = plan_of_rank(model, chosen, one);
    if (plan.offload_choice) {
      choice = plan.offload_choice;  // the first rank's choice, as in a run
      chosen.engine.offload_step = choice->step;
    }
    ranks.push_back(plan.fullest);
    if (!fullest || reserved(plan.fullest) > reserved(fullest->fullest)) fullest = std::move(plan);
  }
  if (options.program) {
    one.program = true;
    one.rank = fullest->fullest.rank;
    fullest = plan_of_rank(model, chosen, one);
  }
  fullest->options = options;
  fullest->pipe = std::move(ranks);
  fullest->offload_choice = choice;
  play_pipeline(*fullest, config);
  return std::move(*fullest);
}

}  // namespace

data::BatchFields fields_of(const hub::ModelConfig& model, bool packed) {
  const bool goes_on = objective(model).kind == hub::Objective::next_tokens;
  if (packed && !goes_on) {
    throw ConfigError(
        str("--pack joins texts that go on; ", hub::model_type(model), " reads a text whole"));
  }
  return {.lengths = !goes_on, .document_starts = packed, .labels = labels_of(model)};
}

Plan make_plan(const hub::ModelConfigFile& model, const train::Config& config,
               const PlanOptions& options) {
  require(options.world > 0 && options.seq > 0 && options.num_threads > 0,
          "plan: world, seq and threads must be positive");
  const int rank = options.rank.value_or(0);
  require(rank >= 0 && rank < options.world, "plan: rank ", rank, " is none of the ", options.world,
          " ranks: 0 to ", options.world - 1);
  train::require_filled(config);
  if (config.mesh.pipe > 1 && !options.rank) return plan_of_pipeline(model, config, options);
  return plan_of_rank(model, config, options);
}

std::optional<double> Plan::tokens_per_second() const {
  if (!fullest.time) return std::nullopt;
  return static_cast<double>(tokens_per_step) / fullest.time->step_seconds;
}

std::optional<PlanChange> cheapest_change(const hub::ModelConfigFile& model,
                                          const train::Config& config, const PlanOptions& options,
                                          int64_t bytes) {
  struct Candidate {
    std::string words;
    zero::EngineConfig engine;
  };
  const zero::EngineConfig& now = config.engine;
  PlanOptions bytes_only = options;
  bytes_only.hardware.reset();
  std::vector<Candidate> candidates;
  const auto add = [&](const std::string& words, auto&& change) {
    Candidate candidate{words, now};
    change(candidate.engine);
    candidates.push_back(std::move(candidate));
  };
  const bool recomputes = now.recompute.every_blocks == 1 ||
                          (now.recompute.num_checkpoints > 0 &&
                           now.recompute.num_checkpoints >= hub::make_model(model)->num_blocks());
  const int most_stage = config.mesh.pipe > 1 ? 2 : 3;
  for (const int stage : {1, 2, 3}) {
    if (stage <= now.zero.stage || options.world == 1 || stage > most_stage) continue;
    if (stage == 3 && !recomputes) continue;  // recomputation is cheaper
    add(str("\"stage\": ", stage), [&](auto& engine) { engine.zero.stage = stage; });
  }
  // Recomputation of every block excludes a schedule that splits backward.
  const bool splits = now.pipeline.schedule == parallel::PipelineSchedule::zero_bubble;
  const std::string recompute =
      str("recomputation of every block", splits ? " with \"pipeline_schedule\": \"1f1b\"" : "");
  for (int64_t batch = now.batch.micro_batch; batch >= 1; batch /= 2) {
    const int64_t factor = now.batch.micro_batch / batch;
    const std::string smaller = factor == 1 ? ""
                                            : str(", micro-batch ", batch, " with accumulation ",
                                                  now.batch.accumulation * factor);
    if (batch * factor != now.batch.micro_batch) continue;
    for (int stage = now.zero.stage; stage <= most_stage; ++stage) {
      if (stage > now.zero.stage && options.world == 1) break;
      const std::string sharded = stage == now.zero.stage ? "" : str(" and \"stage\": ", stage);
      add(recompute + sharded + smaller, [&](auto& engine) {
        engine.recompute.every_blocks = 1;
        engine.recompute.num_checkpoints = 0;
        if (splits) engine.pipeline.schedule = {};
        engine.zero.stage = stage;
        engine.batch.micro_batch = batch;
        engine.batch.accumulation *= factor;
        if (stage >= 2) engine.gradient.reduce_schedule.reset();
      });
    }
  }
  for (const Candidate& candidate : candidates) {
    train::Config changed = config;
    changed.engine = candidate.engine;
    changed.device_memory_limit.reset();
    const int64_t peak = make_plan(model, changed, bytes_only).fullest.device_peak();
    if (peak <= bytes) return PlanChange{candidate.words, peak};
  }
  return std::nullopt;
}

}  // namespace zinc::plan
