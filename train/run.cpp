#include "train/run.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "hub/adapter.h"
#include "hub/model_folder.h"
#include "hub/weights.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/weights/save_model.h"

namespace zinc::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kCheckpoints = "checkpoints";
constexpr std::string_view kBest = "best";  // weights, as the trainer names them
constexpr std::string_view kFinal = "final";

std::string checkpoints_of(const std::string& out) { return str(out, '/', kCheckpoints); }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// Whether a continued run must have the same fingerprint as its checkpoint.
bool is_compared(const std::string& fingerprint) {
  return fingerprint == "model" || fingerprint == "data" || fingerprint == "tuning";
}

bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error) && !error;
}

// Weights that a user may want: "final", "step-000100". Not the best so far of a run that was
// killed before its first checkpoint: the same run finds it again.
bool has_weights(const std::string& out) {
  return files::folder_exists(out + "/final") || !find_checkpoints(out).empty();
}

// A folder of checkpoints, and the name of one of them; empty: the newest.
struct Place {
  std::string folder;
  std::string tag;
};

Place place_of(std::string resume, const std::string& out) {
  if (resume == kAuto) return {checkpoints_of(out), ""};
  while (resume.size() > 1 && resume.back() == '/') resume.pop_back();
  if (files::file_exists(resume + "/manifest.json"))
    return {files::parent_folder(resume), files::file_name(resume)};
  if (files::folder_exists(checkpoints_of(resume))) return {checkpoints_of(resume), ""};
  return {resume, ""};
}

// First values of an engine that loads a checkpoint next: zeros.
class NoValues : public nn::WeightSource {
 public:
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.whole_shape();
  }
  void read(const autograd::Parameter&, int64_t, View out) const override {
    std::memset(out.data(), 0, static_cast<size_t>(out.bytes()));
  }
};

// The trained values, from saved weights; frozen values stay.
class TrainedWeights : public zero::StateSource {
 public:
  TrainedWeights(const nn::WeightSource& weights, nn::Model& model, zero::TrainingState state)
      : weights_(weights), state_(std::move(state)) {
    for (nn::Parameter* parameter : model.parameters()) {
      if (parameter->requires_grad()) parameters_.emplace(parameter->name(), parameter);
    }
  }
  const zero::TrainingState& state() const override { return state_; }
  std::optional<Shape> shape_of(std::string_view name, std::string_view kind) const override {
    const auto found = parameters_.find(name);
    if (kind != zero::kWeightsKind || found == parameters_.end()) return std::nullopt;
    return found->second->shape();
  }
  void read(std::string_view name, std::string_view, int64_t begin, View out) const override {
    weights_.read(*parameters_.find(name)->second, begin, out);
  }

 private:
  const nn::WeightSource& weights_;
  zero::TrainingState state_;
  std::map<std::string, const nn::Parameter*, std::less<>> parameters_;
};

std::string best_json(const BestSoFar& best) {
  files::json::Object object;
  object.set("step", best.step);
  object.set("metric", best.metric);
  object.set("value", best.value.value_or(0.0));
  return files::json::write(object) + '\n';
}

// Whether <out>/best holds the weights of step `step`.
bool has_best(const std::string& out, int64_t step) {
  return files::folder_exists(str(out, '/', kBest)) && files::file_exists(out + "/best.json") &&
         files::json::parse_file(out + "/best.json").at("step").as_int64() == step;
}

void copy_best(const std::string& from, const std::string& out, const BestSoFar& best) {
  files::AtomicFolder folder(str(out, '/', kBest));
  for (const auto& entry : fs::directory_iterator(str(from, '/', kBest))) {
    if (!entry.is_regular_file()) continue;
    files::copy_durably(entry.path().string(),
                        str(folder.path(), '/', entry.path().filename().string()));
  }
  folder.commit(/*replace=*/true);
  files::write_file_atomically(out + "/best.json", best_json(best));
}

}  // namespace

// Runs `work` on every rank, with one outcome for all.
template <class Work>
void Run::together(std::string_view operation, const Work& work) {
  failed_together_ = true;
  comm::together(world_, operation, work);
  failed_together_ = false;
}

Run::Run(comm::World& world, const Config& config, TrainingOptions options, RunParts parts)
    : world_(world), config_(config), options_(std::move(options)), parts_(std::move(parts)) {
  require(!options_.out.empty(), "run: `out` must name a folder");
}

void Run::set_steps(int64_t steps) {
  require(engine_ == nullptr, "run: set_steps() comes before make_engine()");
  options_.steps = steps;
}

void Run::agree(std::vector<comm::Fingerprint> more) {
  agreed_ = {{"configuration", fingerprint_of(config_, world_.size())}};
  agreed_.insert(agreed_.end(), more.begin(), more.end());
  comm::require_agreement(world_, agreed_);
}

void Run::open() {
  together("make the folder of the run", [&] {
    if (world_.is_main()) open_folder();
  });
  if (!options_.resume.empty()) find_checkpoint();
  together("make the files of the run", [&] {
    if (!folder_) return;
    require_filled(config_);
    const std::string configuration = resolved_json(config_, world_.size());
    files::write_file_atomically(folder_->file("config.resolved.json"), configuration);
    sinks_ = open_sinks(*folder_, config_, configuration, figures_so_far());
  });
  if (!config_.trace.empty() && !is_traced_by_program()) open_trace();
}

// A run continues in its own folder. If the folder has neither a checkpoint nor weights that a user
// may want, a new folder takes its place.
void Run::open_folder() {
  const std::string checkpoints = checkpoints_of(options_.out);
  const bool is_run = RunFolder::is_run(options_.out);
  if (is_run && options_.resume == kAuto && !has_weights(options_.out) &&
      find_checkpoints(checkpoints).empty()) {
    folder_.emplace(RunFolder::create(options_.out, /*force=*/true));
    return;
  }
  const Place from = place_of(options_.resume, options_.out);
  if (!is_run || options_.resume.empty() || !is_same_folder(from.folder, checkpoints)) {
    folder_.emplace(RunFolder::create(options_.out, options_.force));
    return;
  }
  folder_.emplace(RunFolder::reopen(options_.out));
  for (std::string& line : clean_checkpoints(checkpoints)) notes_.push_back(std::move(line));
  reopened_ = true;
}

void Run::find_checkpoint() {
  const Place from = place_of(options_.resume, options_.out);
  const bool is_auto = options_.resume == kAuto;
  const bool begins =
      is_auto && !comm::any_rank(world_, reopened_ && !find_checkpoints(from.folder).empty());
  if (begins) {
    if (comm::any_rank(world_, reopened_)) {
      throw DataError(str(options_.out,
                          " holds weights of a run but no checkpoint to go on "
                          "from: take another --out, or --force without --resume"));
    }
    return;
  }
  failed_together_ = true;
  checkpoint_.emplace(open_checkpoint(
      world_, from.folder, {.tag = from.tag, .frozen_from = parts_.frozen_from}, &notes_));
  failed_together_ = false;
  together("read a checkpoint", [&] {
    start_ = parse_run_position(checkpoint_->manifest().client_state);
    for (const comm::Fingerprint& fingerprint : agreed_) {
      const auto found = start_.fingerprints.find(fingerprint.name);
      if (!is_compared(fingerprint.name) || found == start_.fingerprints.end()) continue;
      if (found->second == hex(fingerprint.hash)) continue;
      throw ConfigError(str(checkpoint_->path(), ": the ", fingerprint.name,
                            " of this run is not that of the checkpoint",
                            fingerprint.name == "tuning"
                                ? "; give the same --lora, --adapter, --train and --freeze"
                                : "; to train its weights on, begin a run from weights (--init)"));
    }
  });
  if (!comm::any_rank(world_, reopened_)) find_best_of(files::parent_folder(from.folder));
  together("set later checkpoints aside", [&] {
    if (!reopened_) return;
    for (std::string& line : set_later_aside(from.folder, checkpoint_->state().steps)) {
      notes_.push_back(std::move(line));
    }
  });
}

// Finds the best weights of the run that continues here in another folder.
void Run::find_best_of(const std::string& run) {
  BestSoFar& best = start_.trainer.best;
  if (!best.value) return;
  bool is_there = false;
  together("find the best weights",
           [&] { is_there = world_.is_main() && has_best(run, best.step); });
  if (comm::any_rank(world_, is_there)) {
    best_from_ = run;
    return;
  }
  notes_.push_back(str("the best weights so far, those of step ", best.step, ", are not in ", run,
                       ": the best model is found anew"));
  best = {};
}

std::optional<FiguresSoFar> Run::figures_so_far() const {
  if (!reopened_ || !checkpoint_) return std::nullopt;
  return FiguresSoFar{.step = checkpoint_->state().steps, .samples = start_.trainer.samples};
}

// True if the world has the trace already, as load_config(path, world) of
// train/config/rank_config.h sets it.
bool Run::is_traced_by_program() const { return world_.settings().trace_file == config_.trace; }

// The trace of a continued run gets another name, and leaves the earlier trace in place.
std::string Run::name_of_trace() const {
  if (!checkpoint_) return folder_->place_of(config_.trace);
  const std::string mark = str("from-", checkpoint_name(checkpoint_->state().steps));
  return free_trace_name(folder_->place_of(trace_name(config_.trace, mark)));
}

// Every host's first rank begins the file, the others append to it. With several hosts, appending
// is not safe on every file system: each rank has its own file.
void Run::open_trace() {
  std::string path;
  together("name the trace", [&] {
    if (folder_) path = name_of_trace();
  });
  path = comm::share_text(world_, path);
  if (checkpoint_) notes_.push_back(str("the trace from here on is ", path));
  const comm::RankInfo& rank = world_.info();
  const bool shared = rank.local_size == rank.size;
  const std::string own = shared ? path : str(path, ".rank", rank.rank);
  const bool begins = !shared || rank.rank == 0;
  for (const bool first : {true, false}) {
    together("open the trace", [&] {
      if (begins == first) {
        trace_.emplace(own, TraceWriterOptions{.rank = rank.rank, .begins = begins});
      }
    });
  }
}

zero::Engine& Run::make_engine(nn::Model& model, const data::Loader& loader,
                               zero::EngineOptions options) {
  if (!options.example) options.example = [&loader] { return loader.example(); };
  zero::EngineConfig config = config_.engine;
  if (config.batch.sequence == 0) config.batch.sequence = loader.options().seq_len;
  return make_engine(model, config, std::move(options));
}

zero::Engine& Run::make_engine(nn::Model& model, zero::EngineOptions options) {
  return make_engine(model, config_.engine, std::move(options));
}

zero::Engine& Run::make_engine(nn::Model& model, const zero::EngineConfig& config,
                               zero::EngineOptions options) {
  require(options_.steps > 0, "run: steps must be positive, not ", options_.steps);
  options.total_steps = options_.steps;
  const int64_t freeze_step = config.optimizer.one_bit.freeze_step;
  if (config.sends_signs() && !options.optimizer && freeze_step >= options_.steps) {
    notes_.push_back(str("optimizer.params.freeze_step ", freeze_step, " is not reached in ",
                         options_.steps,
                         " steps, and no signs travel: set it to 15 to 25 % of "
                         "them"));
  }
  const NoValues none;
  if (checkpoint_) options.weights = &none;
  engine_ = std::make_unique<zero::Engine>(model, config, world_, std::move(options));
  if (checkpoint_) {
    load_checkpoint(
        *engine_, *checkpoint_,
        {.optimizer_states = !options_.reset_optimizer, .sign_errors = !options_.reset_errors});
  }
  checkpoint_.reset();
  return *engine_;
}

void Run::save(const std::string& name, const BestSoFar& best) {
  const bool is_best = name == kBest;
  const bool replaces = is_best || name == kFinal || reopened_;
  const hub::SaveOptions options{.replace = replaces,
                                 .allow_damaged = options_.allow_damaged && !is_best,
                                 .tokenizer_folder = parts_.tokenizer_folder};
  const std::string folder = options_.out + "/" + name;
  together("save the weights", [&] {
    if (parts_.model != nullptr && parts_.model->tuning.has_adapters()) {
      const hub::TuningOptions& tuning = parts_.model->tuning;
      save_adapter(*engine_, {.lora = *tuning.lora, .base_model = tuning.base_model},
                   hub::name_map(parts_.model->config), folder, options);
    } else if (parts_.model != nullptr) {
      save_model(*engine_, *parts_.model, folder, options);
    } else {
      save_model(*engine_, folder, options);
    }
    if (is_best && world_.is_main()) {
      files::write_file_atomically(options_.out + "/best.json", best_json(best));
    }
  });
  saved_ = name;
}

bool Run::load_best(const BestSoFar& best) {
  const std::string folder = str(options_.out, '/', kBest);
  nn::Model& model = engine_->model();
  std::unique_ptr<nn::WeightSource> weights;
  together("open the best weights", [&] {
    if (!has_best(options_.out, best.step)) return;
    if (parts_.model == nullptr) {
      weights = std::make_unique<hub::SafetensorsWeights>(folder, model);
    } else if (parts_.model->tuning.has_adapters()) {
      weights = std::make_unique<hub::AdaptedWeights>(model, nullptr,
                                                      hub::name_map(parts_.model->config), folder);
    } else {
      weights = std::make_unique<hub::FolderWeights>(folder, model, parts_.model->config);
    }
  });
  if (comm::any_rank(world_, weights == nullptr)) return false;
  engine_->import_state(TrainedWeights(*weights, model, engine_->state()),
                        {.optimizer_states = false, .counters = false, .strict = false});
  return true;
}

// Runs `work` on the run's checkpoints. If it fails because of files, the run continues, unless the
// configuration requires checkpoints.
template <class Work>
void Run::on_checkpoints(TrainerObserver* observer, const Work& work) {
  try {
    work();
    return;
  } catch (const CommError&) {  // the others may not get here
    throw;
  } catch (const std::exception& error) {
    // An error about numbers: the weights are damaged, and every later checkpoint would be, too.
    const bool is_files = dynamic_cast<const IoError*>(&error) != nullptr ||
                          dynamic_cast<const PeerFailed*>(&error) != nullptr;
    failed_together_ = true;
    if (comm::any_rank(world_, !is_files) || config_.checkpoint.required) throw;
    failed_together_ = false;
    if (observer == nullptr) return;
    observer->on_note(
        str("no checkpoint: ", error.what(), "; the run goes on",
            saved_checkpoint_.empty() ? "" : " with that of before: ", saved_checkpoint_));
  }
}

void Run::begin_checkpoint(const data::Loader& loader, const Trainer& trainer,
                           TrainerObserver* observer, bool last) {
  SaveCheckpointOptions options{.allow_damaged = options_.allow_damaged,
                                .frozen_from = parts_.frozen_from};
  RunPosition position{.loader = loader.state(), .trainer = trainer.state(), .fingerprints = {}};
  for (const comm::Fingerprint& fingerprint : agreed_) {
    position.fingerprints[fingerprint.name] = hex(fingerprint.hash);
  }
  options.client_state = to_json(position);
  together("save a checkpoint", [&] {
    if (world_.is_main()) options.texts = texts_beside();
  });
  if (saver_->is_pending()) end_checkpoint(saver_->finish(), observer);
  checkpoint_step_ = engine_->state().steps;
  saver_->begin({}, std::move(options), config_.saves_beside() && !last);
  if (last || !config_.saves_beside()) end_checkpoint(saver_->finish(), observer);
}

void Run::end_checkpoint(const std::string& path, TrainerObserver* observer) {
  saved_checkpoint_ = str(kCheckpoints, '/', files::file_name(path));
  together("delete old checkpoints", [&] {
    if (world_.is_main() && config_.checkpoint.keep > 0) {
      prune_checkpoints(checkpoints_of(options_.out), config_.checkpoint.keep);
    }
  });
  if (observer == nullptr) return;
  observer->on_save({.step = checkpoint_step_, .path = path, .is_checkpoint = true});
}

std::vector<std::pair<std::string, std::string>> Run::texts_beside() const {
  std::vector<std::pair<std::string, std::string>> texts{
      {"config.resolved.json", resolved_json(config_, world_.size())},
      {"config.json", config_json(*engine_, parts_.model)}};
  if (parts_.model != nullptr && parts_.model->tuning.has_adapters()) {
    const hub::TuningOptions& tuning = parts_.model->tuning;
    texts.emplace_back(
        hub::kAdapterConfigFile,
        hub::adapter_config_json({.lora = *tuning.lora, .base_model = tuning.base_model},
                                 engine_->model()));
  }
  if (parts_.tokenizer_folder.empty()) return texts;
  for (auto& file : hub::read_tokenizer_files(parts_.tokenizer_folder)) {
    if (file.first != "config.json") texts.push_back(std::move(file));
  }
  return texts;
}

void Run::go_on_in(data::Loader& loader) {
  together("go on in the data", [&] {
    try {
      loader.restore(start_.loader);
    } catch (const InvalidArgument& error) {
      throw ConfigError(error.what());
    }
  });
}

TrainResult Run::train(data::Loader& loader, ValidationSets validation, TrainerObserver* observer) {
  require(engine_ != nullptr, "run: open() and make_engine() come before train()");
  const auto keep = [&] {
    together("keep the folder of the run", [&] {
      if (!folder_) return;
      folder_->keep();
      if (!best_from_.empty()) copy_best(best_from_, options_.out, start_.trainer.best);
    });
  };
  if (engine_->state().steps > 0) go_on_in(loader);
  std::optional<Trainer> trainer;
  saver_ = std::make_unique<CheckpointSaver>(*engine_, checkpoints_of(options_.out));
  const auto checkpoint = [&](bool last) {
    on_checkpoints(observer, [&] { begin_checkpoint(loader, *trainer, observer, last); });
  };
  const auto poll = [&] {
    failed_together_ = false;  // the run goes on: best weights that were not saved are a note
    if (is_traced_by_program() && world_.settings().drain_trace) world_.settings().drain_trace();
    on_checkpoints(observer, [&] {
      if (const auto path = saver_->poll()) end_checkpoint(*path, observer);
    });
  };
  const auto save_weights = [&](const std::string& name) {
    save(name, trainer->state().best);
    if (observer == nullptr) return;
    observer->on_save({.step = engine_->state().steps, .path = str(options_.out, '/', name)});
  };
  trainer.emplace(
      *engine_, loader, std::move(validation), std::move(sinks_), observer, options_,
      TrainerParts{.sample = parts_.sample,
                   .checkpoint_every = config_.checkpoint.every,
                   .checkpoint_seconds = 60.0 * config_.checkpoint.minutes,
                   .started = keep,
                   .save = save_weights,
                   .saves_are_required = config_.checkpoint.required,
                   .load_best = [this](const BestSoFar& best) { return load_best(best); },
                   .checkpoint = checkpoint,
                   .after_step = poll,
                   .ends_at = parts_.ends_at,
                   .start = start_.trainer,
                   .stop = parts_.stop,
                   .trace = trace_ ? &*trace_ : nullptr});
  try {
    return trainer->run();
  } catch (const NumericsError&) {  // from a step: on every rank, with the same text
    if (saver_->is_pending()) {
      on_checkpoints(observer, [&] { end_checkpoint(saver_->finish(), observer); });
    }
    failed_together_ = true;
    throw;
  }
}

void Run::end() {
  if (!trace_) return;
  trace_->drain(*world_.context().trace());
  comm::any_rank(world_, false);  // all have drained
  if (world_.info().local_size != world_.size() || world_.is_main()) trace_->finish();
}

}  // namespace zinc::train
