#include "apps/train/training_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <variant>

#include "apps/console.h"
#include "apps/launch/launch_grammar.h"
#include "apps/rank_failure.h"
#include "apps/run_forecast.h"
#include "apps/stop_signal.h"
#include "apps/train/training_head.h"
#include "apps/train/training_samples.h"
#include "comm/device_collectives.h"
#include "core/exit_codes.h"
#include "data/loader.h"
#include "hub/adapter.h"
#include "kernels/device_notes.h"
#include "train/run.h"

namespace zinc::apps {
namespace {

constexpr int64_t kEvaluationTokens = 131'072;  // at most

// A fixed part of a validation set, the same in every world with the same global batch: so many
// of its samples, evenly spread. What is not given is bounded by the length of the run.
int64_t evaluation_samples(const TrainingSetup& setup, const TrainArguments& options,
                           int64_t world_size, const data::Dataset& validation) {
  const int64_t all = validation.num_samples();
  const int64_t global_batch = setup.config.engine.batch.global_batch(world_size);
  const int64_t batches =
      options.eval_batches > 0 ? options.eval_batches : std::max<int64_t>(1, setup.steps / 10);
  const int64_t samples = batches > all / global_batch ? all : batches * global_batch;
  if (options.eval_batches > 0) return samples;
  return std::min(samples, std::max<int64_t>(1, kEvaluationTokens / setup.seq));
}

// When a batch system will end this job, in seconds of the system's clock; 0: not known.
double end_of_allocation() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  return text == nullptr ? 0.0 : std::strtod(text, nullptr);
}

// The words behind the program's name that this process was started with.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

// The same command, from where it was.
std::string resuming(const std::vector<std::string>& words) {
  std::vector<std::string> kept{"zinc"};
  bool is_value = false;
  for (const std::string& word : words) {
    const bool goes = std::exchange(is_value, word == "--resume");
    if (goes || is_value || word == "--force" || word.starts_with("--resume=")) continue;
    kept.push_back(word);
  }
  kept.insert(kept.end(), {"--resume", "auto"});
  return shell_text(kept);
}

// What a run reads: made before its folder, so that bad input leaves none.
struct Input {
  std::unique_ptr<nn::Model> model;
  std::unique_ptr<hub::FolderWeights> base_weights;
  std::unique_ptr<hub::AdaptedWeights> adapted_weights;
  const nn::WeightSource* first_weights = nullptr;  // null: initialised
  std::unique_ptr<data::Loader> loader;
  std::vector<data::EvaluationSet> evaluation;  // in the order of validation_names()
};

// The length of a run that has done `steps_so_far` steps with `samples_so_far` samples.
data::RunLength length_of(const TrainingSetup& setup, const TrainArguments& options,
                          const comm::World& world, int64_t steps_so_far = 0,
                          int64_t samples_so_far = 0) {
  const int64_t global_batch = setup.config.engine.batch.global_batch(world.data().size());
  if (options.trainer.epochs > 0.0) {
    return data::length_of_epochs(options.trainer.epochs, setup.data->training().num_samples(),
                                  global_batch, steps_so_far, samples_so_far);
  }
  return data::length_of_steps(setup.steps, global_batch, steps_so_far, samples_so_far);
}

Input open(TrainingSetup& setup, const TrainArguments& options, const comm::World& world) {
  Input input;
  input.model = hub::make_model(setup.model.config);
  setup.data->open();
  if (!options.init.empty()) {
    input.base_weights =
        std::make_unique<hub::FolderWeights>(options.init, *input.model, setup.model);
    input.first_weights = input.base_weights.get();
    setup.initialised = input.base_weights->initialised();
  }
  hub::apply_tuning(*input.model, setup.model.tuning);
  if (setup.model.tuning.has_adapters()) {
    input.adapted_weights = std::make_unique<hub::AdaptedWeights>(*input.model, input.first_weights,
                                                                  hub::name_map(setup.model.config),
                                                                  setup.model.tuning.adapter);
    input.first_weights = input.adapted_weights.get();
  }
  const int64_t micro_batch = setup.config.engine.batch.micro_batch;
  const int64_t pad_multiple = setup.data->has_lengths() ? setup.config.pad_multiple() : 0;
  const data::RunLength length = length_of(setup, options, world);
  setup.steps = length.steps;
  input.loader = std::make_unique<data::Loader>(
      setup.data->training(), data::LoaderOptions{.micro_batch = micro_batch,
                                                  .seq_len = setup.seq,
                                                  .pad_multiple = pad_multiple,
                                                  .group_by_length = options.data.group_by_length,
                                                  .end = setup.data->fills_rows() ? length.end : 0,
                                                  .seed = setup.config.seed,
                                                  .rank = world.data().rank(),
                                                  .world = world.data().size()});
  for (const auto& set : setup.data->validation()) {
    input.evaluation.emplace_back(
        *set, data::EvaluationOptions{
                  .batch = micro_batch,
                  .seq_len = setup.seq,
                  .pad_multiple = pad_multiple,
                  .max_samples = evaluation_samples(setup, options, world.data().size(), *set),
                  .rank = world.data().rank(),
                  .world = world.data().size()});
  }
  return input;
}

// Makes the tokens of the records on one rank of each host. The other ranks wait for as long as it
// takes. A signal ends the work and the run. Returns the code to end with, or nothing.
std::optional<int> prepare_data(comm::World& world, const TrainingSetup& setup,
                                const std::atomic<bool>& stop) {
  constexpr std::chrono::hours kPatienceOfPeers{24 * 7};
  world.communicator().set_deadline(kPatienceOfPeers);
  const bool live = world.is_main() && isatty(STDERR_FILENO) == 1;
  const auto say = [&](const std::string& text) {
    if (live) fmt::print(stderr, "\r{}\033[K", text);
  };
  const auto work = [&] {
    if (world.info().local_rank == 0) setup.data->prepare(stop, say);
    if (live) fmt::print(stderr, "\r\033[K");
  };
  const std::optional<int> code = fails_on_a_rank(world, work);
  world.communicator().set_deadline(setup.config.comm_deadline);
  if (code) return code;
  if (!comm::any_rank(world, stop)) return std::nullopt;
  if (world.is_main()) fmt::print("stopped by a signal before the first step\n");
  return kDone;
}

train::ValidationSets validation_sets(const Input& input, const TrainArguments& options) {
  const std::vector<std::string> names = validation_names(options.data);
  if (names.front().empty()) return &input.evaluation.front();
  std::vector<train::ValidationSets::Set> sets;
  for (size_t i = 0; i < names.size(); ++i) sets.push_back({names[i], &input.evaluation[i]});
  return sets;
}

std::string describe_best(const train::BestSoFar& best) {
  return fmt::format("the best, of step {}, {} {:.4f}", best.step, best.metric, *best.value);
}

std::string describe_early_stop(const train::TrainResult& result) {
  return fmt::format("stopped early: {} evaluations without an improvement{}",
                     result.best.without_improvement,
                     result.best.value ? "; " + describe_best(result.best) : "");
}

class TrainingJob final : public RankJob {
 public:
  TrainingJob(const TrainArguments& options, int64_t world_size, TraceRecorder& trace)
      : options_(options), world_size_(world_size), trace_(trace) {}

  void prepare() override { setup_ = set_up(options_, world_size_); }

  comm::World connect(bool prepared) override {
    const SignalsHeld held;
    return comm::connect(prepared ? connect_options() : without_job());
  }

  std::vector<RankStep> steps(comm::World& world) override {
    begin(world);
    return {
        RankStep::together([this] { run_->agree(fingerprints(setup_, options_)); }),
        RankStep::alone([this, &world] { return configure(world), std::nullopt; }),
        RankStep::alone([this, &world] { return prepare_data(world, setup_, *stop_); }),
        RankStep::together([this, &world] { open_input(world); }),
        RankStep::alone([this, &world] { return fill(world); }),
        RankStep::together(
            [this, &world] { expected_ = forecast(planned(setup_, options_), world); }),
        RankStep::alone([this, &world] { return take_choice(world), std::nullopt; }),
        RankStep::together([this] { run_->open(); }),
        RankStep::alone([this, &world] { return train(world); }),
    };
  }

 private:
  comm::ConnectOptions connect_options() {
    comm::ConnectOptions connect;
    connect.device = parse_device(options_.device);
    connect.spread_devices = options_.device == "cuda";
    connect.device_collectives = comm::parse_device_collectives(options_.comm);
    connect.seed = setup_.config.seed;
    connect.num_threads = setup_.config.num_threads;
    connect.memory.limits[static_cast<size_t>(Tier::device)] = setup_.config.device_memory_limit;
    if (!setup_.config.trace.empty()) connect.trace = &trace_;
    // Where zinc launch looks when the job has failed.
    if (const char* folder = std::getenv("ZINC_HEARTBEATS")) connect.heartbeat_directory = folder;
    connect.deadline = setup_.config.comm_deadline;
    return connect;
  }

  // For a rank that has nothing to train: it joins to say so.
  comm::ConnectOptions without_job() const {
    const bool peers_choose = options_.device.starts_with("cuda") && options_.comm != "mpi";
    return {.device_collectives = peers_choose ? comm::DeviceCollectives::absent
                                               : comm::DeviceCollectives::automatic};
  }

  void begin(comm::World& world) {
    world.communicator().set_deadline(setup_.config.comm_deadline);
    stop_ = &stop_on_signals();
    const int64_t every = setup_.config.steps_per_print;
    console_.emplace(world.is_main(), every > 0 ? every : 10);
    const std::string of_mpirun =
        notice_of_mpirun([](const char* name) { return std::getenv(name); });
    if (!of_mpirun.empty()) console_->on_note(of_mpirun);
    const auto sample = [this](zero::Engine& engine) {
      return make_samples(*console_, engine, options_, setup_, *stop_);
    };
    run_.emplace(world, setup_.config, options_.training,
                 train::RunParts{.sample = sample,
                                 .ends_at = end_of_allocation(),
                                 .frozen_from = frozen_from(setup_, options_),
                                 .tokenizer_folder = setup_.tokenizer.folder,
                                 .model = &setup_.model,
                                 .stop = stop_});
  }

  void configure(comm::World& world) {
    comm::RankSettings settings = world.settings();
    settings.deadline = setup_.config.comm_deadline;
    settings.mesh = setup_.config.mesh;
    world.configure(std::move(settings));
  }

  void open_input(const comm::World& world) { input_ = open(setup_, options_, world); }

  // Finds the keys that fill memory.
  std::optional<int> fill(comm::World& world) {
    run_->set_steps(setup_.steps);
    auto filled = fill_memory(planned(setup_, options_), world, setup_.config);
    if (const int* code = std::get_if<int>(&filled)) return *code;
    filled_ = std::get<std::string>(std::move(filled));
    return std::nullopt;
  }

  void take_choice(comm::World& world) {
    const zero::OffloadStep choice = share_choice(expected_, world);
    if (choice != zero::OffloadStep::automatic) setup_.config.engine.offload_step = choice;
  }

  // The length of a run that continues, in epochs, follows from where it was.
  void continue_length(const comm::World& world) {
    const data::RunLength length =
        length_of(setup_, options_, world, run_->resumed()->state().steps, run_->samples_so_far());
    setup_.steps = length.steps;
    run_->set_steps(length.steps);
    if (setup_.data->fills_rows()) input_.loader->set_end(length.end);
  }

  void show(comm::World& world) {
    console_->when_output_is_closed(request_stop);
    show_head(*console_, setup_, options_, world, *input_.model, input_.evaluation);
    if (!filled_.empty()) console_->line(filled_);
    for (const std::string& note : run_->notes()) console_->line("note: " + note);
    if (run_->resumed() != nullptr) {
      console_->line(fmt::format("goes on from {}, after step {}", run_->resumed()->path(),
                                 run_->resumed()->state().steps));
    }
    if (run_->replaces()) {
      console_->line("note: the run that is there is replaced when the new one has done a step");
    }
    console_->show_new(
        [&context = world.context()] { return context.slot<kernels::DeviceNotes>().lines(); });
    if (!expected_.problem.empty()) {
      console_->line("note: no predicted time: " + expected_.problem);
    }
    for (const std::string& line : expected_.lines) console_->line(line);
  }

  std::optional<int> train(comm::World& world) {
    if (run_->resumed() != nullptr) continue_length(world);
    show(world);
    run_->make_engine(*input_.model, {.weights = input_.first_weights});
    try {
      result_ = run_->train(*input_.loader, validation_sets(input_, options_), &*console_);
    } catch (...) {
      if (!run_->failed_together()) throw;
      return fail_together(world, std::current_exception());
    }
    run_->end();
    show_result();
    return code_at_end(world);
  }

  int fail_together(comm::World& world, const std::exception_ptr& failure) {
    if (!run_->last_saved().empty()) {
      console_->line(
          fmt::format("last weights saved: {}/{}", options_.training.out, run_->last_saved()));
    }
    return *fails_on_a_rank(world, [&] { std::rethrow_exception(failure); });
  }

  void show_result() {
    const train::TrainResult& result = result_;
    if (result.stopped_early) console_->line(describe_early_stop(result));
    console_->line(fmt::format(
        "{} steps, {} tokens in {}{}; weights in {}/final{}", result.steps,
        train::format_count(static_cast<double>(result.tokens)),
        train::format_duration(result.seconds),
        result.val_loss ? fmt::format(", val loss {:.4f}", *result.val_loss) : "",
        options_.training.out, result.loaded_best ? ": " + describe_best(result.best) : ""));
    console_->line(fmt::format(
        "steps applied: {}, skipped: {}{}", result.applied, result.steps - result.applied,
        result.steps > result.applied ? ", because the gradient was not finite" : ""));
    if (expected_.time && result.seconds_per_step > 0.0) {
      console_->line(
          fmt::format("step time: measured {:.1f} ms, predicted {:.1f} ms ({:.2f} of measured)",
                      1e3 * result.seconds_per_step, 1e3 * expected_.time->step_seconds,
                      expected_.time->step_seconds / result.seconds_per_step));
    }
    if (result.evaluation_stopped) console_->line("the last evaluation was stopped by a signal");
  }

  int code_at_end(comm::World& world) {
    if (!result_.stopped) return kDone;
    const bool is_signalled = comm::any_rank(world, *stop_);
    console_->line(is_signalled ? "stopped by a signal after the step under way"
                                : "stopped before the batch system ends the job");
    if (run_->last_checkpoint().empty()) return kDone;
    console_->line(fmt::format("saved {}/{}; this goes on: {}", options_.training.out,
                               run_->last_checkpoint(), resuming(own_words())));
    return kPreempted;
  }

  const TrainArguments& options_;
  const int64_t world_size_;
  TraceRecorder& trace_;
  TrainingSetup setup_;
  const std::atomic<bool>* stop_ = nullptr;  // from begin() on
  Input input_;
  std::optional<Console> console_;
  std::optional<train::Run> run_;
  std::string filled_;  // what fill() found, for people
  Forecast expected_;
  train::TrainResult result_;
};

}  // namespace

std::unique_ptr<RankJob> training_job(const TrainArguments& options, int64_t world_size,
                                      TraceRecorder& trace) {
  return std::make_unique<TrainingJob>(options, world_size, trace);
}

}  // namespace zinc::apps
