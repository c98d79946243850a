#include "train/run.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "train/adapter.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/files/atomic_file.h"
#include "train/files/input_file.h"
#include "train/hub/model_folder.h"
#include "zero/gather_values.h"
#include "zero/together.h"

namespace zinc::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kCheckpoints = "checkpoints";

std::string checkpoints_of(const std::string& out) { return concat(out, '/', kCheckpoints); }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// Of those that a run which goes on has to share with its checkpoint.
bool is_compared(const std::string& fingerprint) {
  return fingerprint == "model" || fingerprint == "data" || fingerprint == "tuning";
}

bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error) && !error;
}

// Weights of a run: "final", "best", "step-000100".
bool has_weights(const std::string& out) {
  return folder_exists(out + "/final") || folder_exists(out + "/best") ||
         !find_checkpoints(out).empty();
}

// A folder of checkpoints, and the name of one of them; empty: the newest.
struct Place {
  std::string folder;
  std::string tag;
};

Place place_of(std::string resume, const std::string& out) {
  if (resume == kAuto) return {checkpoints_of(out), ""};
  while (resume.size() > 1 && resume.back() == '/') resume.pop_back();
  if (file_exists(resume + "/manifest.json")) return {parent_folder(resume), file_name(resume)};
  if (folder_exists(checkpoints_of(resume))) return {checkpoints_of(resume), ""};
  return {resume, ""};
}

// Zeros, where values come from a checkpoint next.
class NoValues : public nn::WeightSource {
 public:
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.shape();
  }
  void read(const autograd::Parameter&, int64_t, View out) const override {
    std::memset(out.data(), 0, static_cast<size_t>(out.bytes()));
  }
};

}  // namespace

// `work` on every rank, with one outcome for all.
template <class Work>
void Run::together(std::string_view operation, const Work& work) {
  failed_together_ = true;
  zero::together(world_, operation, work);
  failed_together_ = false;
}

Run::Run(comm::World& world, const Config& config, RunOptions options)
    : world_(world), config_(config), options_(std::move(options)) {
  require(options_.steps > 0, "run: steps must be positive, not ", options_.steps);
  require(!options_.out.empty(), "run: `out` must name a folder");
}

void Run::agree(std::vector<zero::Fingerprint> more) {
  agreed_ = {{"configuration", fingerprint_of(config_, world_.size())}};
  agreed_.insert(agreed_.end(), more.begin(), more.end());
  zero::require_agreement(world_, agreed_);
}

void Run::open() {
  together("make the folder of the run", [&] {
    if (world_.is_main()) open_folder();
  });
  if (!options_.resume.empty()) find_checkpoint();
  together("make the files of the run", [&] {
    if (!folder_) return;
    const std::string configuration = resolved_json(config_, world_.size());
    write_file_atomically(folder_->file("config.resolved.json"), configuration);
    sinks_ = open_sinks(*folder_, config_, configuration, figures_so_far());
  });
  if (!config_.trace.empty()) open_trace();
}

// A run goes on in its own folder; where it has left nothing to go on from, nor anything that
// somebody may want, a new one takes its place.
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
      is_auto && !zero::any_rank(world_, reopened_ && !find_checkpoints(from.folder).empty());
  if (begins) {
    if (zero::any_rank(world_, reopened_)) {
      throw DataError(concat(options_.out,
                             " holds weights of a run but no checkpoint to go on "
                             "from: take another --out, or --force without --resume"));
    }
    return;
  }
  failed_together_ = true;
  checkpoint_.emplace(open_checkpoint(
      world_, from.folder, {.tag = from.tag, .frozen_from = options_.frozen_from}, &notes_));
  failed_together_ = false;
  together("read a checkpoint", [&] {
    start_ = parse_run_position(checkpoint_->manifest().client_state);
    for (const zero::Fingerprint& fingerprint : agreed_) {
      const auto found = start_.fingerprints.find(fingerprint.name);
      if (!is_compared(fingerprint.name) || found == start_.fingerprints.end()) continue;
      if (found->second == hex(fingerprint.hash)) continue;
      throw ConfigError(
          concat(checkpoint_->path(), ": the ", fingerprint.name,
                 " of this run is not that of the checkpoint",
                 fingerprint.name == "tuning"
                     ? "; give the same --lora, --adapter, --train and --freeze"
                     : "; to train its weights on, begin a run from weights (--init)"));
    }
  });
  together("set later checkpoints aside", [&] {
    if (!reopened_) return;
    for (std::string& line : set_later_aside(from.folder, checkpoint_->state().steps)) {
      notes_.push_back(std::move(line));
    }
  });
}

std::optional<FiguresSoFar> Run::figures_so_far() const {
  if (!reopened_ || !checkpoint_) return std::nullopt;
  return FiguresSoFar{.step = checkpoint_->state().steps, .samples = start_.trainer.samples};
}

// Every host's first rank begins the file, the others append to it. Between hosts, appending is not
// safe on every file system: each rank has a file of its own.
void Run::open_trace() {
  const std::string path =
      zero::share_text(world_, folder_ ? folder_->place_of(config_.trace) : std::string());
  const comm::RankInfo& rank = world_.info();
  const bool shared = rank.local_size == rank.size;
  const std::string own = shared ? path : concat(path, ".rank", rank.rank);
  const bool begins = !shared || rank.rank == 0;
  for (const bool first : {true, false}) {
    together("open the trace", [&] {
      if (begins == first) {
        trace_.emplace(own, TraceWriterOptions{.rank = rank.rank, .begins = begins});
      }
    });
  }
}

zero::Engine& Run::make_engine(nn::Model& model, const Loader& loader,
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
  options.total_steps = options_.steps;
  const NoValues none;
  if (checkpoint_) options.weights = &none;
  engine_ = std::make_unique<zero::Engine>(model, config, world_, std::move(options));
  if (checkpoint_) load_checkpoint(*engine_, *checkpoint_);
  checkpoint_.reset();
  return *engine_;
}

void Run::save(const std::string& name) {
  const bool is_best = name == "best";
  const bool replaces = is_best || reopened_;
  const SaveOptions options{.replace = replaces,
                            .allow_damaged = options_.allow_damaged && !is_best,
                            .tokenizer_folder = options_.tokenizer_folder};
  const std::string folder = options_.out + "/" + name;
  together("save the weights", [&] {
    if (options_.model != nullptr && options_.model->tuning.has_adapters()) {
      const TuningOptions& tuning = options_.model->tuning;
      save_adapter(*engine_, {.lora = *tuning.lora, .base_model = tuning.base_model},
                   name_map(options_.model->config), folder, options);
    } else if (options_.model != nullptr) {
      save_model(*engine_, *options_.model, folder, options);
    } else {
      save_model(*engine_, folder, options);
    }
  });
  saved_ = name;
}

// `work` on the run's checkpoints. Where it fails for the sake of files, the run goes on, unless it
// must not.
template <class Work>
void Run::on_checkpoints(TrainerObserver* observer, const Work& work) {
  try {
    work();
    return;
  } catch (const CommError&) {  // the others may not get here
    throw;
  } catch (const std::exception& error) {
    // Of numbers: the weights are damaged, and so would be every later checkpoint.
    const bool is_files = dynamic_cast<const IoError*>(&error) != nullptr ||
                          dynamic_cast<const PeerFailed*>(&error) != nullptr;
    failed_together_ = true;
    if (zero::any_rank(world_, !is_files) || config_.checkpoint.required) throw;
    failed_together_ = false;
    if (observer == nullptr) return;
    observer->on_note(
        concat("no checkpoint: ", error.what(), "; the run goes on",
               saved_checkpoint_.empty() ? "" : " with that of before: ", saved_checkpoint_));
  }
}

void Run::begin_checkpoint(const Loader& loader, const Trainer& trainer, bool last) {
  SaveCheckpointOptions options{.allow_damaged = options_.allow_damaged,
                                .frozen_from = options_.frozen_from};
  RunPosition position{.loader = loader.state(), .trainer = trainer.state(), .fingerprints = {}};
  for (const zero::Fingerprint& fingerprint : agreed_) {
    position.fingerprints[fingerprint.name] = hex(fingerprint.hash);
  }
  options.client_state = to_json(position);
  together("save a checkpoint", [&] {
    if (world_.is_main()) options.texts = texts_beside();
  });
  if (saver_->is_pending()) end_checkpoint(saver_->finish());
  saver_->begin({}, std::move(options), config_.saves_beside() && !last);
  if (last || !config_.saves_beside()) end_checkpoint(saver_->finish());
}

void Run::end_checkpoint(const std::string& path) {
  saved_checkpoint_ = concat(kCheckpoints, '/', file_name(path));
  together("delete old checkpoints", [&] {
    if (world_.is_main() && config_.checkpoint.keep > 0) {
      prune_checkpoints(checkpoints_of(options_.out), config_.checkpoint.keep);
    }
  });
}

std::vector<std::pair<std::string, std::string>> Run::texts_beside() const {
  std::vector<std::pair<std::string, std::string>> texts{
      {"config.resolved.json", resolved_json(config_, world_.size())},
      {"config.json", config_json(*engine_, options_.model)}};
  if (options_.model != nullptr && options_.model->tuning.has_adapters()) {
    const TuningOptions& tuning = options_.model->tuning;
    texts.emplace_back(kAdapterConfigFile,
                       adapter_config_json({.lora = *tuning.lora, .base_model = tuning.base_model},
                                           engine_->model()));
  }
  if (options_.tokenizer_folder.empty()) return texts;
  for (auto& file : read_tokenizer_files(options_.tokenizer_folder)) {
    if (file.first != "config.json") texts.push_back(std::move(file));
  }
  return texts;
}

void Run::go_on_in(Loader& loader) {
  together("go on in the data", [&] {
    try {
      loader.restore(start_.loader);
    } catch (const InvalidArgument& error) {
      throw ConfigError(concat(error.what(),
                               "; take a micro-batch and ranks whose product divides ",
                               start_.loader.samples, ", the samples so far"));
    }
  });
}

TrainResult Run::train(Loader& loader, const EvaluationSet* evaluation, TrainerObserver* observer) {
  require(engine_ != nullptr, "run: open() and make_engine() come before train()");
  const auto keep = [&] {
    together("keep the folder of the run", [&] {
      if (folder_) folder_->keep();
    });
  };
  if (engine_->state().steps > 0) go_on_in(loader);
  std::optional<Trainer> trainer;
  saver_ = std::make_unique<CheckpointSaver>(*engine_, checkpoints_of(options_.out));
  const auto checkpoint = [&](bool last) {
    on_checkpoints(observer, [&] { begin_checkpoint(loader, *trainer, last); });
  };
  const auto poll = [&] {
    on_checkpoints(observer, [&] {
      if (const auto path = saver_->poll()) end_checkpoint(*path);
    });
  };
  trainer.emplace(*engine_, loader, evaluation, std::move(sinks_), observer,
                  TrainerOptions{.steps = options_.steps,
                                 .eval_every = options_.eval_every,
                                 .export_every = options_.export_every,
                                 .checkpoint_every = config_.checkpoint.every,
                                 .checkpoint_seconds = 60.0 * config_.checkpoint.minutes,
                                 .started = keep,
                                 .save = [this](const std::string& name) { save(name); },
                                 .checkpoint = checkpoint,
                                 .after_step = poll,
                                 .ends_at = options_.ends_at,
                                 .start = start_.trainer,
                                 .stop = options_.stop,
                                 .trace = trace_ ? &*trace_ : nullptr});
  try {
    return trainer->run();
  } catch (const NumericsError&) {  // of a step: on every rank, in the same words
    if (saver_->is_pending()) {
      on_checkpoints(observer, [&] { end_checkpoint(saver_->finish()); });
    }
    failed_together_ = true;
    throw;
  }
}

void Run::end() {
  if (!trace_) return;
  trace_->drain(*world_.context().trace());
  zero::any_rank(world_, false);  // all have drained
  if (world_.info().local_size != world_.size() || world_.is_main()) trace_->finish();
}

}  // namespace zinc::train
