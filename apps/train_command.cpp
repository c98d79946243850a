// zinc train: a model, a configuration and text become weights.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/launch/launch_grammar.h"
#include "apps/rank_failure.h"
#include "apps/run_data.h"
#include "apps/run_forecast.h"
#include "apps/run_tokenizer.h"
#include "apps/stop_signal.h"
#include "apps/swap_preflight.h"
#include "apps/trainer_options.h"
#include "apps/tuning_options.h"
#include "comm/agreement.h"
#include "comm/device_collectives.h"
#include "comm/gather_values.h"
#include "comm/world.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/philox.h"
#include "data/loader.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "generate/generate.h"
#include "hub/adapter.h"
#include "hub/family.h"
#include "hub/model.h"
#include "kernels/attention_library.h"
#include "kernels/device_notes.h"
#include "text/tokenizer.h"
#include "train/config/config.h"
#include "train/run.h"
#include "train/trainer.h"

namespace zinc::apps {
namespace {

constexpr int64_t kEvaluationTokens = 131'072;  // at most
constexpr int64_t kSampleTokens = 400;

struct TrainArguments {
  std::string config;
  std::string model;
  RunDataArguments data;
  std::string out;
  std::string init;
  std::string tokenizer;
  std::string device = "cpu";
  std::string comm = "auto";
  std::string dtype;
  std::vector<std::string> sample_prompts;  // none: a line's end
  int64_t sample_every = 0;
  int64_t histogram_every = 0;
  std::string hardware;
  TrainerArguments trainer;
  int64_t seq = 0;
  int64_t eval_batches = 0;  // 0: not given
  int64_t export_every = 0;
  std::string resume;
  int threads = 0;  // 0: not given
  bool force = false;
  bool dry_run = false;
  bool allow_nan = false;
  TuningArguments tuning;
  bool save_frozen = false;
  train::Overrides flags;
};

// What a run is made of, in the order in which it is made.
struct Job {
  hub::ModelConfigFile model;
  RunTokenizer tokenizer;
  std::unique_ptr<RunData> data;
  bool vocabulary_replaced = false;
  std::vector<std::string> initialised;  // parameters that --init does not hold
  train::BestModelOptions best;
  train::Config config;
  int64_t seq = 0;
  int64_t steps = 0;  // 0: --epochs says it, when the data are open
};

// --classes for a model that was trained on text alone: it gets a head for them.
void begin_classes(hub::ModelConfigFile& model, const TrainArguments& options) {
  using hub::Objective;
  const std::vector<std::string>& classes = options.data.examples.classes;
  const Objective kind = hub::objective(model.config).kind;
  if (classes.empty() || (kind != Objective::masked_tokens && kind != Objective::none)) return;
  if (model.tuning.has_adapters()) {
    throw ConfigError(
        "--classes gives this model a new head, which adapters would leave untrained; train the "
        "head first (--train 'classifier.*'), then adapters of the model with it");
  }
  hub::become_classifier(model, std::ssize(classes));
}

// Where frozen weights are, which checkpoints then leave out; empty: they hold them. A folder says
// by its config.json how its tensors are named.
std::string frozen_from(const Job& job, const TrainArguments& options) {
  const bool refers = !options.save_frozen && job.config.mesh.tensor == 1 &&
                      !job.model.tuning.is_all() && job.model.new_parameters.empty() &&
                      job.model.stored_vocabulary == 0 &&
                      files::file_exists(options.init + "/config.json");
  return refers ? options.init : "";
}

// Tokens that were added to the tokenizer of trained weights get rows of their own. `made`: tokens
// of the text; 0: none.
void grow_with_tokenizer(Job& job, int64_t made) {
  const int64_t known = hub::vocabulary_size(job.model.config);
  const text::Tokenizer* tokenizer = job.tokenizer.tokenizer.get();
  if (made <= known || tokenizer == nullptr || tokenizer->own_vocabulary_size() > known) return;
  if (job.model.tuning.has_adapters()) {
    throw ConfigError(fmt::format(
        "{} has {} tokens, of which {} were added to those of the model's {}; adapters would leave "
        "out their rows of the embedding: train the model with them first (--train with the "
        "embedding's name trains it alone), then adapters of that",
        tokenizer->name(), made, made - known, known));
  }
  hub::grow_vocabulary(job.model, made);
}

Job prepare(const TrainArguments& options, int64_t world_size) {
  Job job;
  require_consistent(options.trainer);
  job.steps = options.trainer.steps;
  job.best = best_model_of(options.trainer, validation_names(options.data));
  const std::string model = options.model.empty() ? options.init : options.model;
  if (model.empty()) throw ConfigError("--model (or --init) must name a model");
  job.model = hub::find_model_config(model);
  job.model.tuning = tuning_of(options.tuning, hub::model_type(job.model.config));
  job.model.tuning.base_model = options.init.empty() ? model : options.init;
  if (job.model.tuning.quantize && frozen_from(job, options).empty()) {
    throw ConfigError(
        "--quantize leaves the base out of checkpoints: give its folder, with a config.json, in "
        "--init, and no --save-frozen");
  }
  job.tokenizer = find_tokenizer(options.tokenizer, options.init);
  job.data = find_run_data(options.data, job.tokenizer);
  // A preset's vocabulary becomes that of the text's tokens. Trained weights keep theirs.
  const int64_t made = job.data->vocabulary_size();
  if (made > 0 && options.init.empty() && hub::vocabulary_size(job.model.config) != made) {
    hub::set_vocabulary_size(job.model.config, made);
    job.vocabulary_replaced = true;
  }
  grow_with_tokenizer(job, made);
  const int64_t longest = hub::max_positions(job.model.config);
  job.seq = options.seq > 0 ? options.seq : std::min(longest, kDefaultSequence);
  if (job.seq > longest) {
    throw ConfigError(
        fmt::format("--seq {} is longer than the model's {} positions", job.seq, longest));
  }
  begin_classes(job.model, options);
  job.data->fit(job.model, job.seq);
  if (const auto& classes = options.data.examples.classes; !classes.empty()) {
    hub::set_class_names(job.model, classes);
  }
  train::Overrides flags = options.flags;
  if (job.steps > 0) flags.total_steps = job.steps;
  flags.hidden_size = hub::hidden_size(job.model.config);
  if (!options.dtype.empty()) {
    flags.dtype = parse_dtype(options.dtype);
    if (!flags.dtype || !is_float(*flags.dtype) || *flags.dtype == DType::f64) {
      throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", options.dtype));
    }
  }
  job.config = train::load_config(options.config, world_size, flags);
  job.config.engine.batch.sequence = job.seq;
  job.config.engine.precision.allow_nonfinite_loss = options.allow_nan;
  if (options.threads > 0) job.config.num_threads = options.threads;
  // A plan needs no GPU.
  if (!options.dry_run) {
    require_device(parse_device(options.device), job.config.engine.precision.dtype,
                   job.config.engine.fp8);
  }
  return job;
}

// A graph is recorded for one shape.
bool has_short_batches(const Job& job) {
  return job.data->has_lengths() && !job.config.engine.cuda_graph;
}

std::string threads_from(const comm::RankInfo& rank) {
  return rank.threads_from.empty() ? "" : fmt::format(" ({})", rank.threads_from);
}

// A fixed part of a validation set, the same in every world with the same global batch: so many
// of its samples, evenly spread. What is not given is bounded by the length of the run.
int64_t evaluation_samples(const Job& job, const TrainArguments& options, int64_t world_size,
                           const data::Dataset& validation) {
  const int64_t all = validation.num_samples();
  const int64_t global_batch = job.config.engine.batch.global_batch(world_size);
  const int64_t batches =
      options.eval_batches > 0 ? options.eval_batches : std::max<int64_t>(1, job.steps / 10);
  const int64_t samples = batches > all / global_batch ? all : batches * global_batch;
  if (options.eval_batches > 0) return samples;
  return std::min(samples, std::max<int64_t>(1, kEvaluationTokens / job.seq));
}

std::string describe_evaluation(const Job& job, const TrainArguments& options,
                                const std::vector<data::EvaluationSet>& sets) {
  const std::vector<std::string> names = validation_names(options.data);
  std::string words = options.trainer.when_evaluated() + "at the end, on ";
  for (size_t i = 0; i < sets.size(); ++i) {
    words +=
        fmt::format("{}{}{}{} of {}", i > 0 ? ", " : "", names[i], names[i].empty() ? "" : ": ",
                    sets[i].num_samples(), job.data->validation()[i]->num_samples());
  }
  return words + fmt::format(" {} (--eval-batches)", job.data->samples_are());
}

std::string describe_length(const Job& job, const TrainArguments& options) {
  const double epochs = options.trainer.epochs;
  if (epochs == 0.0) return fmt::format("{} steps", job.steps);
  return fmt::format("{} steps, {:g} {} of {} {}", job.steps, epochs,
                     epochs == 1.0 ? "epoch" : "epochs", job.data->training().num_samples(),
                     job.data->samples_are());
}

// " = 2 data x 4 sequence x 2 tensor", of axes with several ranks.
std::string grid_of(const comm::Mesh& mesh, int data_ranks) {
  std::string text = fmt::format(" = {} data", data_ranks);
  if (mesh.sequence > 1) text += fmt::format(" x {} sequence", mesh.sequence);
  if (mesh.pipe > 1) text += fmt::format(" x {} pipe", mesh.pipe);
  if (mesh.tensor > 1) text += fmt::format(" x {} tensor", mesh.tensor);
  return text;
}

void show_head(Console& console, const Job& job, const TrainArguments& options, comm::World& world,
               nn::Model& model, const std::vector<data::EvaluationSet>& sets) {
  const zero::EngineConfig& engine = job.config.engine;
  const std::string_view most = has_short_batches(job) ? "at most " : "";
  console.table(
      "zinc train",
      {{"model",
        fmt::format("{} {}, {} weights, vocabulary {}", hub::model_type(job.model.config),
                    options.model, train::format_count(static_cast<double>(model.num_parameters())),
                    model.vocab_size())},
       {"data", job.data->training().describe()},
       {"tokenizer", job.tokenizer.describe()},
       {"batch", fmt::format("{} x {}{} tokens x {} accumulated x {} ranks = {}{} tokens per step",
                             engine.batch.micro_batch, most, job.seq, engine.batch.accumulation,
                             world.data().size(), most,
                             engine.batch.global_batch(world.data().size()) * job.seq)},
       {"length", describe_length(job, options)},
       {"evaluation", describe_evaluation(job, options, sets)},
       {"precision", std::string(zinc::name_of(engine.precision.dtype))},
       {"optimizer", fmt::format("{}, lr {:g}, schedule {}", name_of(engine.optimizer.kind),
                                 engine.optimizer.hyper.lr, name_of(engine.schedule.kind))},
       {"zero", fmt::format("stage {}", engine.zero.stage)},
       {"ranks",
        fmt::format("{}{} ({}), {} threads each{}", world.size(),
                    world.mesh().is_flat() ? "" : grid_of(world.mesh(), world.data().size()),
                    world.info().source, world.context().num_threads(),
                    threads_from(world.info()))},
       {"seed", fmt::format("{}", job.config.seed)},
       {"out", options.out}});
  if (!world.device_collectives().empty()) {
    console.line("collectives: " + world.device_collectives());
  }
  if (world.context().device().is_cuda()) {
    console.line("attention: " + kernels::attention_outlook(engine.precision.dtype));
  }
  if (job.model.tuning.has_default_targets) {
    std::string targets;
    for (const std::string& target : job.model.tuning.lora->targets) {
      targets += (targets.empty() ? "" : ", ") + target;
    }
    console.on_note(fmt::format("LoRA names no targets: {}, peft's own of {}", targets,
                                hub::model_type(job.model.config)));
  }
  if (!job.model.tuning.is_all()) console.line(hub::describe_trainable(model));
  if (!job.initialised.empty()) {
    console.line(fmt::format("note: {} does not hold the head for classes, which is new: {}",
                             options.init, fmt::join(job.initialised, ", ")));
  }
  if (const int64_t stored = job.model.stored_vocabulary; stored > 0) {
    console.line(fmt::format(
        "note: {} tokens were added to the tokenizer: the vocabulary grows from {} to {}, and the "
        "rows of new tokens begin as the mean of the others",
        model.vocab_size() - stored, stored, model.vocab_size()));
  }
  for (const std::string& line : job.data->notes()) console.line(line);
  const std::string note = job.tokenizer.note(job.vocabulary_replaced, model.vocab_size());
  if (!note.empty()) console.line(note);
  const int64_t positions = hub::max_positions(job.model.config);
  if (options.init.empty() && job.seq < positions && hub::learns_positions(job.model.config)) {
    console.line(fmt::format(
        "note: positions {0} to {1} of the model are never trained; --seq {2} would train "
        "them all, zinc generate --context {0} stays below them",
        job.seq, positions - 1, positions));
  }
  if (world.is_main()) {
    for (const std::string& note : swap_notes(engine)) console.line("note: " + note);
  }
  for (const std::string& notice : job.config.notices) console.line("note: " + notice);
  if (const std::string_view on_dtype = model.note_on(engine.precision.dtype); !on_dtype.empty()) {
    console.line(fmt::format("note: {}", on_dtype));
  }
  if (job.config.dump_state) {
    console.line(train::resolved_json(job.config, world.size()));
    console.line(model.tree());
  }
}

// A signal came while the sample was made.
struct SampleStopped {};

// The same texts on every rank, because every rank takes part; rank 0 shows them. The model sees
// `context` tokens at most: it may know nothing of longer text. A courtesy: what goes wrong with it
// is said, and changes nothing.
std::vector<train::SampleText> make_samples(Console& console, zero::Engine& engine,
                                            const TrainArguments& options, const Job& job,
                                            const std::atomic<bool>& stop) {
  const bool writes = nn::find_interface<nn::CausalLm>(engine.model()) != nullptr ||
                      nn::find_interface<nn::EncoderDecoderLm>(engine.model()) != nullptr;
  if (!writes) return {};
  const text::ByteTokenizer bytes;
  const text::Tokenizer& tokenizer = job.tokenizer.tokenizer ? *job.tokenizer.tokenizer : bytes;
  if (&tokenizer == &bytes && engine.model().vocab_size() != bytes.vocabulary_size()) return {};
  const auto stops = [&](std::span<const int32_t>) {
    if (comm::any_rank(engine.world(), stop)) throw SampleStopped{};
    return false;
  };
  const std::optional<int32_t> end = tokenizer.end_of_text();
  std::vector<train::SampleText> samples;
  try {
    for (const std::string& prompt : options.sample_prompts) {
      const std::vector<int32_t> tokens = generate::generate_tokens(
          engine, tokenizer.encode_with_specials(prompt),
          {.max_tokens = kSampleTokens,
           .sampling = {.temperature = 0.8, .top_k = 40},
           .seed = job.config.seed,
           .stop_tokens = end ? std::vector{*end} : std::vector<int32_t>{},
           .context = job.seq,
           .ends = stops});
      samples.push_back({prompt, tokenizer.decode(tokens)});
      console.line("sample:\n---\n" + samples.back().text + "\n---");
    }
  } catch (const SampleStopped&) {
    console.line("note: no sample: stopped by a signal");
  } catch (const std::exception& error) {
    console.line(fmt::format("note: no sample: {}", error.what()));
  }
  return samples;
}

comm::ConnectOptions connect_options(const TrainArguments& options, const train::Config& config,
                                     TraceRecorder* trace) {
  comm::ConnectOptions connect;
  connect.device = parse_device(options.device);
  connect.spread_devices = options.device == "cuda";
  connect.device_collectives = comm::parse_device_collectives(options.comm);
  connect.seed = config.seed;
  connect.num_threads = config.num_threads;
  connect.memory.limits[static_cast<size_t>(Tier::device)] = config.device_memory_limit;
  connect.trace = trace;
  // Where zinc launch looks when the job has failed.
  if (const char* folder = std::getenv("ZINC_HEARTBEATS")) connect.heartbeat_directory = folder;
  connect.deadline = config.comm_deadline;
  return connect;
}

// Of a rank that has nothing to train: it joins to say so.
comm::ConnectOptions without_job(const TrainArguments& options) {
  const bool peers_choose = options.device.starts_with("cuda") && options.comm != "mpi";
  return {.device_collectives =
              peers_choose ? comm::DeviceCollectives::absent : comm::DeviceCollectives::automatic};
}

// What every rank must have alike, before anything is done together that depends on it.
std::vector<comm::Fingerprint> fingerprints(const Job& job, const TrainArguments& options) {
  const TrainerArguments& trainer = options.trainer;
  const std::string flags = str(
      trainer.steps, ' ', trainer.epochs, ' ', job.seq, ' ', trainer.eval_every, ' ',
      trainer.eval_strategy, ' ', trainer.eval_on_start, ' ', options.eval_batches, ' ',
      options.export_every, ' ', options.sample_every, ' ', options.histogram_every, ' ',
      options.allow_nan, ' ', options.data.group_by_length, ' ', options.init, ' ',
      options.save_frozen, ' ', job.best.metric, ' ', job.best.greater_is_better.value_or(false),
      ' ', job.best.patience, ' ', job.best.threshold, ' ', job.best.load_at_end);
  return {{"model", hash_text(hub::model_config_json(job.model.config, DType::f32))},
          {"data", job.data->hash()},
          {"tuning", hash_text(hub::text_of(job.model.tuning))},
          {"command line (steps, sequence length, intervals)", hash_text(flags)}};
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

// Of a run that has done so many steps, with so many samples.
data::RunLength length_of(const Job& job, const TrainArguments& options, const comm::World& world,
                          int64_t steps_so_far = 0, int64_t samples_so_far = 0) {
  const int64_t global_batch = job.config.engine.batch.global_batch(world.data().size());
  if (options.trainer.epochs > 0.0) {
    return data::length_of_epochs(options.trainer.epochs, job.data->training().num_samples(),
                                  global_batch, steps_so_far, samples_so_far);
  }
  return data::length_of_steps(job.steps, global_batch, steps_so_far, samples_so_far);
}

Input open_input(Job& job, const TrainArguments& options, const comm::World& world) {
  Input input;
  input.model = hub::make_model(job.model.config);
  job.data->open();
  if (!options.init.empty()) {
    input.base_weights =
        std::make_unique<hub::FolderWeights>(options.init, *input.model, job.model);
    input.first_weights = input.base_weights.get();
    job.initialised = input.base_weights->initialised();
  }
  hub::apply_tuning(*input.model, job.model.tuning);
  if (job.model.tuning.has_adapters()) {
    input.adapted_weights = std::make_unique<hub::AdaptedWeights>(*input.model, input.first_weights,
                                                                  hub::name_map(job.model.config),
                                                                  job.model.tuning.adapter);
    input.first_weights = input.adapted_weights.get();
  }
  const int64_t micro_batch = job.config.engine.batch.micro_batch;
  const int64_t pad_multiple = job.data->has_lengths() ? job.config.pad_multiple() : 0;
  const data::RunLength length = length_of(job, options, world);
  job.steps = length.steps;
  input.loader = std::make_unique<data::Loader>(
      job.data->training(), data::LoaderOptions{.micro_batch = micro_batch,
                                                .seq_len = job.seq,
                                                .pad_multiple = pad_multiple,
                                                .group_by_length = options.data.group_by_length,
                                                .end = job.data->fills_rows() ? length.end : 0,
                                                .seed = job.config.seed,
                                                .rank = world.data().rank(),
                                                .world = world.data().size()});
  for (const auto& set : job.data->validation()) {
    input.evaluation.emplace_back(
        *set, data::EvaluationOptions{
                  .batch = micro_batch,
                  .seq_len = job.seq,
                  .pad_multiple = pad_multiple,
                  .max_samples = evaluation_samples(job, options, world.data().size(), *set),
                  .rank = world.data().rank(),
                  .world = world.data().size()});
  }
  return input;
}

PlannedRun planned(const Job& job, const TrainArguments& options) {
  return {.model = job.model,
          .config = job.config,
          .seq = job.seq,
          .device = options.device,
          .comm = options.comm,
          .hardware = options.hardware,
          .save_frozen = frozen_from(job, options).empty(),
          .fields = job.data->fields()};
}

// Tokens of the records, made by one rank of each host. Its peers wait for it as long as it takes;
// a signal ends the work, and the run.
std::optional<int> prepare_data(comm::World& world, Job& job, const std::atomic<bool>& stop) {
  constexpr std::chrono::hours kPatienceOfPeers{24 * 7};
  world.communicator().set_deadline(kPatienceOfPeers);
  const bool live = world.is_main() && isatty(STDERR_FILENO) == 1;
  const auto say = [&](const std::string& text) {
    if (live) fmt::print(stderr, "\r{}\033[K", text);
  };
  const auto work = [&] {
    if (world.info().local_rank == 0) job.data->prepare(stop, say);
    if (live) fmt::print(stderr, "\r\033[K");
  };
  const std::optional<int> code = fails_on_a_rank(world, work);
  world.communicator().set_deadline(job.config.comm_deadline);
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

// The code to end with where the run failed on all ranks, which was said then.
std::optional<int> train(train::Run& run, Input& input, Console& console, comm::World& world,
                         const TrainArguments& options, train::TrainResult& result) {
  std::exception_ptr failure;
  try {
    result = run.train(*input.loader, validation_sets(input, options), &console);
    return std::nullopt;
  } catch (...) {
    if (!run.failed_together()) throw;
    failure = std::current_exception();
  }
  if (!run.last_saved().empty()) {
    console.line(fmt::format("last weights saved: {}/{}", options.out, run.last_saved()));
  }
  return fails_on_a_rank(world, [&] { std::rethrow_exception(failure); });
}

std::string describe_best(const train::BestSoFar& best) {
  return fmt::format("the best, of step {}, {} {:.4f}", best.step, best.metric, *best.value);
}

std::string describe_early_stop(const train::TrainResult& result) {
  return fmt::format("stopped early: {} evaluations without an improvement{}",
                     result.best.without_improvement,
                     result.best.value ? "; " + describe_best(result.best) : "");
}

int train_on(comm::World& world, Job& job, const TrainArguments& options) {
  world.communicator().set_deadline(job.config.comm_deadline);
  const std::atomic<bool>& stop = stop_on_signals();
  std::optional<Input> input;
  Console console(world.is_main(),
                  job.config.steps_per_print > 0 ? job.config.steps_per_print : 10);
  const std::string of_mpirun =
      notice_of_mpirun([](const char* name) { return std::getenv(name); });
  if (!of_mpirun.empty()) console.on_note(of_mpirun);
  const auto sample = [&](zero::Engine& engine) {
    return make_samples(console, engine, options, job, stop);
  };
  train::Run run(world, job.config,
                 {.out = options.out,
                  .force = options.force,
                  .steps = job.steps,
                  .eval_every = options.trainer.eval_every,
                  .eval_each_epoch = options.trainer.evaluates_each_epoch(),
                  .eval_on_start = options.trainer.eval_on_start,
                  .best = job.best,
                  .export_every = options.export_every,
                  .sample = sample,
                  .sample_every = options.sample_every,
                  .histogram_every = options.histogram_every,
                  .resume = options.resume,
                  .ends_at = end_of_allocation(),
                  .allow_damaged = options.allow_nan,
                  .frozen_from = frozen_from(job, options),
                  .tokenizer_folder = job.tokenizer.folder,
                  .model = &job.model,
                  .stop = &stop});
  if (const auto code = fails_on_a_rank(world, [&] { run.agree(fingerprints(job, options)); })) {
    return *code;
  }
  comm::RankSettings settings = world.settings();
  settings.deadline = job.config.comm_deadline;
  settings.mesh = job.config.mesh;
  world.configure(std::move(settings));
  if (const auto code = prepare_data(world, job, stop)) return *code;
  const auto open_all = [&] { input.emplace(open_input(job, options, world)); };
  if (const auto code = fails_on_a_rank(world, open_all)) return *code;
  run.set_steps(job.steps);
  const auto filled = fill_memory(planned(job, options), world, job.config);
  if (const int* code = std::get_if<int>(&filled)) return *code;
  Forecast expected;
  const auto look_ahead = [&] { expected = forecast(planned(job, options), world); };
  if (const auto code = fails_on_a_rank(world, look_ahead)) return *code;
  const zero::OffloadStep choice = share_choice(expected, world);
  if (choice != zero::OffloadStep::automatic) job.config.engine.offload_step = choice;
  if (const auto code = fails_on_a_rank(world, [&] { run.open(); })) return *code;
  if (run.resumed() != nullptr) {
    const data::RunLength length =
        length_of(job, options, world, run.resumed()->state().steps, run.samples_so_far());
    job.steps = length.steps;
    run.set_steps(length.steps);
    if (job.data->fills_rows()) input->loader->set_end(length.end);
  }

  console.when_output_is_closed(request_stop);
  show_head(console, job, options, world, *input->model, input->evaluation);
  if (!std::get<std::string>(filled).empty()) console.line(std::get<std::string>(filled));
  for (const std::string& note : run.notes()) console.line("note: " + note);
  if (run.resumed() != nullptr) {
    console.line(fmt::format("goes on from {}, after step {}", run.resumed()->path(),
                             run.resumed()->state().steps));
  }
  if (run.replaces()) {
    console.line("note: the run that is there is replaced when the new one has done a step");
  }
  console.show_new(
      [&context = world.context()] { return context.slot<kernels::DeviceNotes>().lines(); });
  if (!expected.problem.empty()) console.line("note: no predicted time: " + expected.problem);
  for (const std::string& line : expected.lines) console.line(line);
  run.make_engine(*input->model, {.weights = input->first_weights});
  train::TrainResult result;
  if (const auto code = train(run, *input, console, world, options, result)) return *code;
  run.end();
  if (result.stopped_early) console.line(describe_early_stop(result));
  console.line(
      fmt::format("{} steps, {} tokens in {}{}; weights in {}/final{}", result.steps,
                  train::format_count(static_cast<double>(result.tokens)),
                  train::format_duration(result.seconds),
                  result.val_loss ? fmt::format(", val loss {:.4f}", *result.val_loss) : "",
                  options.out, result.loaded_best ? ": " + describe_best(result.best) : ""));
  console.line(
      fmt::format("steps applied: {}, skipped: {}{}", result.applied, result.steps - result.applied,
                  result.steps > result.applied ? ", because the gradient was not finite" : ""));
  if (expected.time && result.seconds_per_step > 0.0) {
    console.line(
        fmt::format("step time: measured {:.1f} ms, predicted {:.1f} ms ({:.2f} of measured)",
                    1e3 * result.seconds_per_step, 1e3 * expected.time->step_seconds,
                    expected.time->step_seconds / result.seconds_per_step));
  }
  if (result.evaluation_stopped) console.line("the last evaluation was stopped by a signal");
  if (!result.stopped) return kDone;
  const bool is_signalled = comm::any_rank(world, stop);
  console.line(is_signalled ? "stopped by a signal after the step under way"
                            : "stopped before the batch system ends the job");
  if (run.last_checkpoint().empty()) return kDone;
  console.line(fmt::format("saved {}/{}; this goes on: {}", options.out, run.last_checkpoint(),
                           resuming(own_words())));
  return kPreempted;
}

CLI::Range at_least_one() { return {int64_t{1}, int64_t{1} << 53}; }
CLI::Range at_least_zero() { return {int64_t{0}, int64_t{1} << 53}; }

int run_training(const TrainArguments& options) {
  const comm::RankInfo rank = comm::discover_rank();
  std::optional<Job> job;
  std::exception_ptr problem;
  try {
    job.emplace(prepare(options, rank.size));
  } catch (...) {
    problem = std::current_exception();
  }
  if (options.dry_run) {  // joins no ranks
    if (problem != nullptr && rank.rank != 0) return describe(problem).code;
    if (problem != nullptr) std::rethrow_exception(problem);
    if (rank.rank == 0) print_plan(planned(*job, options), rank);
    return kDone;
  }
  TraceRecorder trace;  // outlives the world
  TraceRecorder* const recorder = job && !job->config.trace.empty() ? &trace : nullptr;
  std::optional<comm::World> world;
  try {
    const SignalsHeld held;
    world.emplace(comm::connect(job ? connect_options(options, job->config, recorder)
                                    : without_job(options)));
  } catch (...) {
    std::rethrow_exception(problem != nullptr ? problem : std::current_exception());
  }
  const auto all_prepared = [&] {
    if (problem != nullptr) std::rethrow_exception(problem);
  };
  if (const auto code = fails_on_a_rank(*world, all_prepared)) return *code;
  const int code = train_on(*world, *job, options);
  if (code == kDone) return code;
  // mpirun ends the job at the first rank that fails: none does before the run's folder, which a
  // failed start does not leave, is removed.
  try {
    comm::any_rank(*world, false);
  } catch (const CommError&) {  // a rank is gone, which was said
  }
  return code;
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a model");
  train::Overrides& flags = options->flags;
  verb->add_option("--config", options->config, "DeepSpeed JSON configuration")->required();
  verb->add_option("--model", options->model, "Preset, config.json or a folder that holds one");
  add_run_data_options(*verb, options->data);
  add_trainer_options(*verb, options->trainer);
  verb->add_option("--seed", flags.seed, "Of weights, data order and dropout");
  const auto not_empty = [](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  };
  verb->add_option("--out", options->out, "Folder of the run")->required()->check(not_empty);
  verb->add_option("--init", options->init, "Hugging Face folder with the first weights");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer for text, copied to what is saved (default: "
                   "that of --init, else bytes)");
  verb->add_option("--batch,--per-device-train-batch-size", flags.micro_batch,
                   "Sequences per rank and micro-step");
  verb->add_option("--seq", options->seq, "Tokens per sequence")->check(at_least_one());
  verb->add_option("--grad-accum,--gradient-accumulation-steps", flags.accumulation,
                   "Micro-steps per optimizer step");
  verb->add_option("--lr,--learning-rate", flags.lr, "Learning rate")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--weight-decay", flags.weight_decay, "Not on biases and norms")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--warmup-steps", flags.warmup_steps, "Steps of the schedule's warm-up")
      ->check(at_least_zero());
  verb->add_option("--dtype", options->dtype, "f32, bf16 or f16");
  verb->add_option("--device", options->device,
                   "cpu (default); cuda: a GPU for each rank of a host; cuda:<i>");
  verb->add_option("--comm", options->comm, std::string(comm_help()));
  verb->add_option("--eval-batches", options->eval_batches,
                   "Global batches of an evaluation, the same in each (default: a tenth of the "
                   "steps, at most 131072 tokens)")
      ->check(at_least_one());
  verb->add_option("--save-every,--save-steps", flags.save_every,
                   "Steps between checkpoints, which --resume goes on from (default 0: none but "
                   "when a signal ends the run)")
      ->check(at_least_zero());
  verb->add_option("--save-minutes", flags.save_minutes, "Minutes between checkpoints")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(
          "--save-total-limit", flags.save_total_limit,
          "The newest checkpoints that stay (default 3; 0: all); the best weights stay too")
      ->check(at_least_zero());
  verb->add_option("--export-every", options->export_every,
                   "Steps between saved weights (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--label-smoothing-factor", flags.label_smoothing,
                   "Share of each label that is spread over all classes, in training (default 0)");
  add_tuning_options(*verb, options->tuning);
  verb->add_flag("--save-frozen", options->save_frozen,
                 "Checkpoints hold frozen weights too (default: they name those of --init)");
  verb->add_option("--resume", options->resume,
                   "auto: go on from the newest checkpoint in --out, from the beginning where "
                   "there is none; or a checkpoint, or a run's folder")
      ->check(not_empty);
  verb->add_option("--threads", options->threads,
                   "Per rank (default: this host's cores / its ranks)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--sample-prompt", options->sample_prompts,
                   "What a sample goes on from; several make several samples")
      ->check(not_empty);
  verb->add_option("--sample-every", options->sample_every,
                   "Steps between samples (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--histogram-every", options->histogram_every,
                   "Steps between histograms of the weights, for TensorBoard (default 0: none)")
      ->check(at_least_zero());
  verb->add_flag("--allow-nan", options->allow_nan,
                 "Go on where the loss is NaN or infinite, which ends a run otherwise");
  verb->add_option("--hardware", options->hardware,
                   "The machine's speeds: a step's predicted time is printed beside the measured "
                   "one (default: what `zinc bench ceilings --save` measured)");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print what the run would take, as zinc plan does, and end");
  verb->add_flag("--force", options->force, "Replace an existing run in --out");
  verb->callback([options, &action] {
    if (options->sample_prompts.empty()) options->sample_prompts.emplace_back("\n");
    action = [options] { return run_training(*options); };
  });
}

}  // namespace zinc::apps
