// zinc train: a model, a configuration and text become weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/exit_codes.h"
#include "apps/run_forecast.h"
#include "apps/run_output.h"
#include "apps/run_tokenizer.h"
#include "apps/stop_signal.h"
#include "apps/swap_preflight.h"
#include "comm/device_collectives.h"
#include "comm/world.h"
#include "core/crc32c.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/philox.h"
#include "kernels/attention_library.h"
#include "kernels/device_notes.h"
#include "train/config/config.h"
#include "train/data/token_windows.h"
#include "train/generate.h"
#include "train/model.h"
#include "train/text/tokenizer.h"
#include "train/trace/trace_writer.h"
#include "train/trainer.h"
#include "zero/agreement.h"
#include "zero/gather_values.h"

namespace zinc::apps {
namespace {

constexpr double kValidationFraction = 0.05;    // of the data, from its end
constexpr int64_t kEvaluationTokens = 131'072;  // at most
constexpr int64_t kSampleTokens = 400;

struct TrainArguments {
  std::string config;
  std::string model;
  std::vector<std::string> data;
  std::vector<std::string> validation;
  std::string out;
  std::string init;
  std::string tokenizer;
  std::string device = "cpu";
  std::string comm = "auto";
  std::string dtype;
  std::string sample_prompt = "\n";
  std::string hardware;
  int64_t steps = 0;
  int64_t seq = 0;
  int64_t eval_every = 0;
  int64_t eval_batches = 0;  // 0: not given
  int64_t save_every = 0;
  int threads = 0;  // 0: not given
  bool force = false;
  bool dry_run = false;
  bool allow_nan = false;
  train::Overrides flags;
};

// What a run is made of, in the order in which it is made.
struct Job {
  train::ModelConfigFile model;
  RunTokenizer tokenizer;
  train::TokenSequence tokens;
  bool vocabulary_replaced = false;
  train::Config config;
  int64_t seq = 0;
  std::unique_ptr<train::TokenWindows> train_data;
  std::unique_ptr<train::TokenWindows> validation_data;
};

Job prepare(const TrainArguments& options, int64_t world_size) {
  Job job;
  const std::string model = options.model.empty() ? options.init : options.model;
  if (model.empty()) throw ConfigError("--model (or --init) must name a model");
  job.model = train::find_model_config(model);
  job.tokenizer = find_tokenizer(options.tokenizer, options.init);
  job.tokens = job.tokenizer.open(options.data);
  // A preset's vocabulary becomes that of the text's tokens. Trained weights keep theirs.
  if (job.tokens.is_text() && options.init.empty() &&
      train::vocabulary_size(job.model.config) != job.tokens.vocabulary_size()) {
    train::set_vocabulary_size(job.model.config, job.tokens.vocabulary_size());
    job.vocabulary_replaced = true;
  }
  require_own_tokens(job.tokenizer, "--data", job.tokens, train::vocabulary_size(job.model.config));
  const int64_t longest = train::max_positions(job.model.config);
  job.seq = options.seq > 0 ? options.seq : std::min(longest, kDefaultSequence);
  if (job.seq > longest) {
    throw ConfigError(
        fmt::format("--seq {} is longer than the model's {} positions", job.seq, longest));
  }
  train::Overrides flags = options.flags;
  flags.total_steps = options.steps;
  flags.hidden_size = train::hidden_size(job.model.config);
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
    require_device(parse_device(options.device), job.config.engine.precision.dtype);
  }
  return job;
}

void open_data(Job& job, const TrainArguments& options) {
  const int64_t vocabulary = train::vocabulary_size(job.model.config);
  train::TokenSequence training = job.tokens;
  train::TokenSequence validation;
  if (options.validation.empty()) {
    std::tie(training, validation) = job.tokens.split_tail(kValidationFraction);
  } else {
    validation = job.tokenizer.open(options.validation);
    require_own_tokens(job.tokenizer, "--validation", validation, vocabulary);
  }
  job.train_data = std::make_unique<train::TokenWindows>(
      training, train::TokenWindowsOptions{.seq_len = job.seq, .vocabulary_size = vocabulary});
  job.validation_data = std::make_unique<train::TokenWindows>(
      validation, train::TokenWindowsOptions{
                      .seq_len = job.seq, .vocabulary_size = vocabulary, .keep_short = true});
}

std::string threads_from(const comm::RankInfo& rank) {
  return rank.threads_from.empty() ? "" : fmt::format(" ({})", rank.threads_from);
}

// A fixed part of the validation data, the same in every world with the same global batch: so many
// of its windows, evenly spread. What is not given is bounded by the length of the run.
int64_t evaluation_windows(const Job& job, const TrainArguments& options, int64_t world_size) {
  const int64_t all = job.validation_data->num_samples();
  const int64_t global_batch = job.config.engine.batch.global_batch(world_size);
  const int64_t batches =
      options.eval_batches > 0 ? options.eval_batches : std::max<int64_t>(1, options.steps / 10);
  const int64_t windows = batches > all / global_batch ? all : batches * global_batch;
  if (options.eval_batches > 0) return windows;
  return std::min(windows, std::max<int64_t>(1, kEvaluationTokens / job.seq));
}

std::string describe_evaluation(const Job& job, const TrainArguments& options, int64_t windows) {
  return fmt::format("{}at the end, on {} of {} windows of {} tokens (--eval-batches)",
                     options.eval_every > 0 ? fmt::format("every {} steps and ", options.eval_every)
                                            : std::string(),
                     windows, job.validation_data->num_samples(), job.seq);
}

void show_head(Console& console, const Job& job, const TrainArguments& options, comm::World& world,
               nn::Model& model, int64_t evaluation_windows) {
  const zero::EngineConfig& engine = job.config.engine;
  console.table(
      "zinc train",
      {{"model",
        fmt::format("{} {}, {} weights, vocabulary {}", train::model_type(job.model.config),
                    options.model, train::format_count(static_cast<double>(model.num_parameters())),
                    model.vocab_size())},
       {"data", job.train_data->describe()},
       {"tokenizer", job.tokenizer.describe()},
       {"batch", fmt::format("{} x {} tokens x {} accumulated x {} ranks = {} tokens per step",
                             engine.batch.micro_batch, job.seq, engine.batch.accumulation,
                             world.size(), engine.batch.global_batch(world.size()) * job.seq)},
       {"evaluation", describe_evaluation(job, options, evaluation_windows)},
       {"precision", std::string(zinc::name_of(engine.precision.dtype))},
       {"optimizer", fmt::format("{}, lr {:g}, schedule {}", name_of(engine.optimizer.kind),
                                 engine.optimizer.hyper.lr, name_of(engine.schedule.kind))},
       {"zero", fmt::format("stage {}", engine.zero.stage)},
       {"ranks", fmt::format("{} ({}), {} threads each{}", world.size(), world.info().source,
                             world.context().num_threads(), threads_from(world.info()))},
       {"seed", fmt::format("{}", job.config.seed)},
       {"out", options.out}});
  if (!world.device_collectives().empty()) {
    console.line("collectives: " + world.device_collectives());
  }
  if (world.context().device().is_cuda()) {
    console.line("attention: " + kernels::attention_outlook(engine.precision.dtype));
  }
  const std::string note = job.tokenizer.note(job.vocabulary_replaced, model.vocab_size());
  if (!note.empty()) console.line(note);
  const int64_t positions = train::max_positions(job.model.config);
  if (options.init.empty() && job.seq < positions && train::learns_positions(job.model.config)) {
    console.line(fmt::format(
        "note: positions {0} to {1} of the model are never trained; --seq {2} would train "
        "them all, zinc generate --context {0} stays below them",
        job.seq, positions - 1, positions));
  }
  if (world.is_main()) {
    for (const std::string& note : swap_notes(engine)) console.line("note: " + note);
  }
  for (const std::string& notice : job.config.notices) console.line("note: " + notice);
  if (job.config.dump_state) {
    console.line(train::resolved_json(job.config, world.size()));
    console.line(model.tree());
  }
}

// A signal came while the sample was made.
struct SampleStopped {};

// The same text on every rank, because every rank takes part; rank 0 shows it. The model sees
// `context` tokens at most: it may know nothing of longer text. A courtesy: what goes wrong with it
// is said, and changes nothing.
void show_sample(Console& console, zero::Engine& engine, const TrainArguments& options,
                 const Job& job, const std::atomic<bool>& stop) {
  const train::ByteTokenizer bytes;
  const train::Tokenizer& tokenizer = job.tokenizer.tokenizer ? *job.tokenizer.tokenizer : bytes;
  if (&tokenizer == &bytes && engine.model().vocab_size() != bytes.vocabulary_size()) return;
  const auto next_logits = [&](const Tensor& ids) {
    if (zero::any_rank(engine.world(), stop)) throw SampleStopped{};
    return engine.next_logits(ids);
  };
  try {
    const std::vector<int32_t> tokens =
        train::generate(next_logits, tokenizer.encode_with_specials(options.sample_prompt),
                        {.max_tokens = kSampleTokens,
                         .sampling = {.temperature = 0.8, .top_k = 40},
                         .seed = job.config.seed,
                         .stop_token = tokenizer.end_of_text(),
                         .context = job.seq});
    console.line("sample:\n---\n" + tokenizer.decode(tokens) + "\n---");
  } catch (const SampleStopped&) {
    console.line("note: no sample: stopped by a signal");
  } catch (const std::exception& error) {
    console.line(fmt::format("note: no sample: {}", error.what()));
  }
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

// `work` on every rank. Where it throws on some, the first of those says why, so that there is one
// message, and all end with its code: nobody goes on alone, and nobody leaves before it is said,
// because mpirun ends the job at the first rank that fails.
template <class Work>
std::optional<int> fails_on_a_rank(comm::World& world, Work&& work) {
  std::optional<Failure> failure;
  try {
    work();
  } catch (const PeerFailed&) {  // the other rank's message is the one
  } catch (...) {
    failure = describe(std::current_exception());
  }
  const double mine = failure ? failure->code : kDone;
  const std::vector<double> codes = zero::gather_values(world, {&mine, 1});
  const auto first = std::find_if(codes.begin(), codes.end(), [](double c) { return c != 0.0; });
  if (first == codes.end()) return std::nullopt;
  if (first - codes.begin() == world.rank()) report(*failure);
  zero::any_rank(world, false);  // a barrier
  return static_cast<int>(*first);
}

// Making the run's folder or saving failed on a rank, and the message is out.
struct WritingFailed {
  int code;
};

// Samples of the data, spread over all of it: reading everything would take as long as reading it
// once more.
uint64_t hash_of_data(const train::TokenSequence& tokens) {
  constexpr int64_t kSamples = 64;
  constexpr int64_t kSampleTokens = 1024;
  std::string text;
  for (const auto& part : tokens.parts()) {
    text += concat(part.begin, ' ', part.end, ' ');
    std::vector<int32_t> values;
    for (int64_t i = 0; i < kSamples; ++i) {
      const int64_t begin = part.begin + part.num_tokens() * i / kSamples;
      const int64_t end = std::min(begin + kSampleTokens, part.end);
      part.file->append_to(values, begin, end, 0);
    }
    text += concat(crc32c(std::as_bytes(std::span(values))), ' ');
  }
  return hash_text(text);
}

// What every rank must have alike, before anything is done together that depends on it.
void require_same_job(comm::World& world, const Job& job, const TrainArguments& options) {
  const std::string flags =
      concat(options.steps, ' ', job.seq, ' ', options.eval_every, ' ', options.eval_batches, ' ',
             options.save_every, ' ', options.allow_nan, ' ', options.init.empty());
  uint64_t data = hash_of_data(job.tokens);
  if (!options.validation.empty()) {
    data ^= 31 * hash_of_data(job.tokenizer.open(options.validation));
  }
  zero::require_agreement(
      world,
      std::array{
          zero::Fingerprint{"configuration", train::fingerprint_of(job.config, world.size())},
          zero::Fingerprint{"model",
                            hash_text(train::model_config_json(job.model.config, DType::f32))},
          zero::Fingerprint{"data", data},
          zero::Fingerprint{"command line (steps, sequence length, intervals)", hash_text(flags)}});
}

// What a run reads: made before its folder, so that bad input leaves none.
struct Input {
  std::unique_ptr<nn::Model> model;
  std::optional<train::FolderWeights> first_weights;
  std::unique_ptr<train::Loader> loader;
  std::unique_ptr<train::EvaluationSet> evaluation;
};

Input open_input(Job& job, const TrainArguments& options, const comm::World& world) {
  Input input;
  input.model = train::make_model(job.model.config);
  open_data(job, options);
  if (!options.init.empty()) {
    input.first_weights.emplace(options.init, *input.model, job.model.config);
  }
  const int64_t micro_batch = job.config.engine.batch.micro_batch;
  input.loader = std::make_unique<train::Loader>(*job.train_data,
                                                 train::LoaderOptions{.micro_batch = micro_batch,
                                                                      .seq_len = job.seq,
                                                                      .seed = job.config.seed,
                                                                      .rank = world.rank(),
                                                                      .world = world.size()});
  input.evaluation = std::make_unique<train::EvaluationSet>(
      *job.validation_data,
      train::EvaluationOptions{.batch = micro_batch,
                               .seq_len = job.seq,
                               .max_samples = evaluation_windows(job, options, world.size()),
                               .rank = world.rank(),
                               .world = world.size()});
  return input;
}

// Every host's first rank begins the file, the others append to it. Between hosts, appending is not
// safe on every file system: each rank has a file of its own.
std::optional<int> open_trace(comm::World& world, const std::string& path,
                              std::optional<train::TraceWriter>& trace) {
  const comm::RankInfo& rank = world.info();
  const bool shared = rank.local_size == rank.size;
  const std::string own = shared ? path : fmt::format("{}.rank{}", path, rank.rank);
  const bool begins = !shared || rank.rank == 0;
  const auto open = [&](bool now) {
    return fails_on_a_rank(world, [&] {
      if (now) trace.emplace(own, train::TraceWriterOptions{.rank = rank.rank, .begins = begins});
    });
  };
  if (const auto code = open(begins)) return code;
  return open(!begins);
}

void close_trace(comm::World& world, std::optional<train::TraceWriter>& trace) {
  trace->drain(*world.context().trace());
  zero::any_rank(world, false);  // all have drained
  if (world.info().local_size != world.size() || world.is_main()) trace->finish();
}

PlannedRun planned(const Job& job, const TrainArguments& options) {
  return {.model = job.model,
          .config = job.config,
          .seq = job.seq,
          .device = options.device,
          .comm = options.comm,
          .hardware = options.hardware};
}

int train_on(comm::World& world, Job& job, const TrainArguments& options) {
  world.communicator().set_deadline(job.config.comm_deadline);
  const std::atomic<bool>& stop = stop_on_signals();
  std::optional<Input> input;
  std::optional<RunOutput> output;
  if (const auto code = fails_on_a_rank(world, [&] { require_same_job(world, job, options); })) {
    return *code;
  }
  const auto open_all = [&] { input.emplace(open_input(job, options, world)); };
  if (const auto code = fails_on_a_rank(world, open_all)) return *code;
  Forecast expected;
  const auto look_ahead = [&] { expected = forecast(planned(job, options), world); };
  if (const auto code = fails_on_a_rank(world, look_ahead)) return *code;
  const zero::OffloadStep choice = share_choice(expected, world);
  if (choice != zero::OffloadStep::automatic) job.config.engine.offload_step = choice;
  const auto make_folder = [&] {
    output.emplace(open_output(job.config, options.out, options.force, world));
  };
  if (const auto code = fails_on_a_rank(world, make_folder)) return *code;
  std::optional<train::TraceWriter> trace;
  if (!job.config.trace.empty()) {
    const std::string path = zero::share_text(
        world, output->run ? output->run->place_of(job.config.trace) : std::string());
    if (const auto code = open_trace(world, path, trace)) return *code;
  }

  Console console(world.is_main(),
                  job.config.steps_per_print > 0 ? job.config.steps_per_print : 10);
  console.when_output_is_closed(request_stop);
  show_head(console, job, options, world, *input->model, input->evaluation->num_samples());
  if (output->run && output->run->replaces()) {
    console.line("note: the run that is there is replaced when the new one has done a step");
  }
  console.show_new(
      [&context = world.context()] { return context.slot<kernels::DeviceNotes>().lines(); });
  if (!expected.problem.empty()) console.line("note: no predicted time: " + expected.problem);
  for (const std::string& line : expected.lines) console.line(line);
  zero::Engine engine(*input->model, job.config.engine, world,
                      {.weights = input->first_weights ? &*input->first_weights : nullptr,
                       .total_steps = options.steps});
  std::string saved;
  const auto together = [&](const auto& work) {
    if (const auto code = fails_on_a_rank(world, work)) throw WritingFailed{*code};
  };
  const auto keep = [&] {
    together([&] {
      if (output->run) output->run->keep();
    });
  };
  const auto save = [&](const std::string& name) {
    const bool replaces = name == "best";
    together([&] {
      train::save_model(engine, job.model, options.out + "/" + name,
                        {.replace = replaces,
                         .allow_damaged = options.allow_nan && !replaces,
                         .tokenizer_folder = job.tokenizer.folder});
    });
    saved = name;
  };
  train::Trainer trainer(engine, *input->loader, input->evaluation.get(), std::move(output->sinks),
                         &console,
                         {.steps = options.steps,
                          .eval_every = options.eval_every,
                          .save_every = options.save_every,
                          .started = keep,
                          .save = save,
                          .stop = &stop,
                          .trace = trace ? &*trace : nullptr});
  train::TrainResult result;
  try {
    result = trainer.run();
  } catch (const WritingFailed& failed) {
    return failed.code;
  } catch (const NumericsError&) {  // on every rank, in the same words
    const Failure failure = describe(std::current_exception());
    if (!saved.empty()) console.line(fmt::format("last weights saved: {}/{}", options.out, saved));
    if (world.is_main()) report(failure);
    zero::any_rank(world, false);  // nobody leaves before it is said
    return failure.code;
  }
  if (trace) close_trace(world, trace);
  if (!result.stopped && !result.evaluation_stopped) {
    show_sample(console, engine, options, job, stop);
  }
  console.line(fmt::format(
      "{} steps, {} tokens in {}{}; weights in {}/final", result.steps,
      train::format_count(static_cast<double>(result.tokens)),
      train::format_duration(result.seconds),
      result.val_loss ? fmt::format(", val loss {:.4f}", *result.val_loss) : "", options.out));
  if (expected.time && result.seconds_per_step > 0.0) {
    console.line(
        fmt::format("step time: measured {:.1f} ms, predicted {:.1f} ms ({:.2f} of measured)",
                    1e3 * result.seconds_per_step, 1e3 * expected.time->step_seconds,
                    expected.time->step_seconds / result.seconds_per_step));
  }
  if (result.stopped) console.line("stopped by a signal after the step under way");
  if (result.evaluation_stopped) console.line("the last evaluation was stopped by a signal");
  return kDone;
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
  return train_on(*world, *job, options);
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a model");
  train::Overrides& flags = options->flags;
  verb->add_option("--config", options->config, "DeepSpeed JSON configuration")->required();
  verb->add_option("--model", options->model, "Preset, config.json or a folder that holds one");
  verb->add_option("--data", options->data, "UTF-8 text, or llm.c or nanoGPT .bin files")
      ->required();
  verb->add_option("--validation", options->validation,
                   "Files to evaluate on (default: the last 5 % of the data)");
  verb->add_option("--steps", options->steps, "Optimizer steps")->required()->check(at_least_one());
  verb->add_option("--seed", flags.seed, "Of weights, data order and dropout");
  const auto not_empty = [](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  };
  verb->add_option("--out", options->out, "Folder of the run")->required()->check(not_empty);
  verb->add_option("--init", options->init, "Hugging Face folder with the first weights");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer for text, copied to what is saved (default: "
                   "that of --init, else bytes)");
  verb->add_option("--batch", flags.micro_batch, "Sequences per rank and micro-step");
  verb->add_option("--seq", options->seq, "Tokens per sequence")->check(at_least_one());
  verb->add_option("--grad-accum", flags.accumulation, "Micro-steps per optimizer step");
  verb->add_option("--lr", flags.lr, "Learning rate")->check(CLI::NonNegativeNumber);
  verb->add_option("--weight-decay", flags.weight_decay, "Not on biases and norms")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--warmup-steps", flags.warmup_steps, "Steps of the schedule's warm-up")
      ->check(at_least_zero());
  verb->add_option("--dtype", options->dtype, "f32, bf16 or f16");
  verb->add_option("--device", options->device,
                   "cpu (default); cuda: a GPU for each rank of a host; cuda:<i>");
  verb->add_option("--comm", options->comm, std::string(comm_help()));
  verb->add_option("--eval-every", options->eval_every,
                   "Steps between evaluations (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--eval-batches", options->eval_batches,
                   "Global batches of an evaluation, the same in each (default: a tenth of the "
                   "steps, at most 131072 tokens)")
      ->check(at_least_one());
  verb->add_option("--save-every", options->save_every,
                   "Steps between saved weights (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--threads", options->threads,
                   "Per rank (default: this host's cores / its ranks)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--sample-prompt", options->sample_prompt,
                   "What the sample at the end goes on from")
      ->check(not_empty);
  verb->add_flag("--allow-nan", options->allow_nan,
                 "Go on where the loss is NaN or infinite, which ends a run otherwise");
  verb->add_option("--hardware", options->hardware,
                   "The machine's speeds: a step's predicted time is printed beside the measured "
                   "one (default: what `zinc bench ceilings --save` measured)");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print what the run would take, as zinc plan does, and end");
  verb->add_flag("--force", options->force, "Replace an existing run in --out");
  verb->callback([options, &action] { action = [options] { return run_training(*options); }; });
}

}  // namespace zinc::apps
